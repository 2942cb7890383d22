"""A trained model written for programs that know neither polyformer nor, with ONNX, torch.

``FORMATS`` says which file each ending becomes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.errors import InvalidParameter, MissingDependency, PolyformerError
from polyformer.files import reporting_io_errors, write_json, write_whole
from polyformer.files.run_schemas import EXPORT
from polyformer.models import NodeModel
from polyformer.runs.exporting.program import Scorer, onnx_program, torch_program
from polyformer.runs.exporting.recipe import INPUT, export_recipe
from polyformer.runs.saved_model import ModelCard

__all__ = ["FORMATS", "Export", "check_export_path", "export_model"]

TOLERANCE = 1e-5
_CHECKED_ROWS = (1, 64)


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        path: the model's file.
        recipe: the JSON beside it, which says how tokens are made.
        largest_difference: by which answers of the file differ from ours on made-up tokens.
    """

    path: Path
    recipe: Path
    largest_difference: float


Answers = Callable[[torch.Tensor], np.ndarray]


def _onnx(scorer: Scorer, recipe: dict[str, Any]) -> tuple[bytes, Answers]:
    """The bytes of an ONNX file whose metadata is the recipe, a text for each of its fields, and its answers."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  # torch's exporter asks for it
    except ImportError as error:
        raise MissingDependency(
            f"ONNX files need the package '{error.name}'. Install it with: pip install 'polyformer[export]'"
        ) from None
    proto = onnx_program(scorer)
    onnx.helper.set_model_props(proto, {name: _text(value) for name, value in recipe.items()})
    content = proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda tokens: session.run(None, {INPUT: tokens.numpy()})[0]


def _pt2(scorer: Scorer, recipe: dict[str, Any]) -> tuple[bytes, Answers]:
    """The bytes of a file for ``torch.export.load``, with the recipe as its extra file ``polyformer.json``."""
    program, buffer = torch_program(scorer), io.BytesIO()
    torch.export.save(program, buffer, extra_files={"polyformer.json": json.dumps(recipe)})
    module = program.module()
    return buffer.getvalue(), lambda tokens: module(tokens).numpy()


FORMATS: dict[str, Callable[[Scorer, dict[str, Any]], tuple[bytes, Answers]]] = {".onnx": _onnx, ".pt2": _pt2}


def check_export_path(out: Path) -> None:
    """Refuse a file name whose ending stands for no format."""
    if out.suffix.lower() not in FORMATS:
        raise InvalidParameter(f"'out' must end in {' or '.join(FORMATS)}. Got '{out}'.")


@torch.no_grad()
def export_model(card: ModelCard, model: NodeModel, out: Path, preprocessing: Sequence[str] = ()) -> Export:
    """Write the model as a function of tokens, and beside it ``<out>.json``, which says how tokens are made.

    Args:
        out: ends in ``.onnx`` or ``.pt2``; an existing file is replaced.
        preprocessing: sentences on what was done to the features before training, for the JSON.
    """
    check_export_path(out)
    if model.label_channels:
        raise InvalidParameter(
            "The model reads known labels beside the features, which a file of its own would not have, so it cannot be "
            "exported. Train one with label_input=0."
        )
    function = model.on_tokens(card.model)
    scorer = Scorer(card, model.cpu(), function).eval()
    recipe = export_recipe(card, function, out.name, preprocessing)
    content, answers = FORMATS[out.suffix.lower()](scorer, recipe)
    difference = _largest_difference(scorer, answers, card.units[1])
    beside = out.with_name(f"{out.name}.json")
    with reporting_io_errors("the exported model", out):
        with write_whole(out) as file:
            file.write(content)
        write_json(beside, recipe, EXPORT)
    return Export(out, beside, difference)


def _largest_difference(scorer: Scorer, answers: Answers, unit: float) -> float:
    """The largest difference of the file's answers from ours, in units of the labels; too large a one is refused."""
    largest = 0.0
    for rows in _CHECKED_ROWS:
        tokens = scorer.example(rows)
        largest = max(largest, float(np.abs(answers(tokens) - scorer(tokens).numpy()).max()) / unit)
    if not largest <= TOLERANCE:
        raise PolyformerError(
            f"The answers of the exported model differ from ours by {largest:.2g}, more than {TOLERANCE:g}, so nothing "
            f"was written. Report it, with the versions of torch and onnxruntime."
        )
    return largest


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
