"""A trained model as a program of torch: tokens in, probabilities or values out, for batches of any size."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import torch
from torch import Tensor, nn

from polyformer.models import NodeModel
from polyformer.models.token_function import TokenFunction
from polyformer.runs.exporting.recipe import INPUT, output_name
from polyformer.runs.saved_model import ModelCard

__all__ = ["Scorer", "onnx_program", "torch_program"]

_OPSET = 18
_EXAMPLE_ROWS = 3


class Scorer(nn.Module):
    """Probabilities (B, C), or values (B, 1) of a regression, of tokens (B, K+1, width)."""

    def __init__(self, card: ModelCard, model: NodeModel, function: TokenFunction) -> None:
        super().__init__()
        self.model, self._function, self._objective = model, function, card.reader
        self.output = output_name(card)

    def forward(self, tokens: Tensor) -> Tensor:
        return self._objective.read(self._function.outputs(tokens))

    def example(self, rows: int = _EXAMPLE_ROWS) -> Tensor:
        """Tokens of made-up nodes, the same at every call."""
        shape = rows, self._function.order + 1, self._function.width
        return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def torch_program(scorer: Scorer) -> Any:
    """The ``ExportedProgram``, without what it tells of this machine: paths of source files, and the example."""
    with _quiet():
        program = torch.export.export(scorer, (scorer.example(),), dynamic_shapes=_any_batch(), strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    program.example_inputs = None
    return program


def onnx_program(scorer: Scorer) -> Any:
    """The ONNX ``ModelProto``, without what it tells of this machine: paths of source files stand at every node."""
    with _quiet():
        program = torch.onnx.export(
            scorer,
            (scorer.example(),),
            dynamo=True,
            input_names=[INPUT],
            output_names=[scorer.output],
            dynamic_shapes=_any_batch(),
            opset_version=_OPSET,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    for part in (proto, proto.graph, *proto.graph.node, *proto.graph.value_info, *proto.graph.initializer):
        del part.metadata_props[:]
    return proto


def _any_batch() -> tuple[dict[int, Any]]:
    return ({0: torch.export.Dim("nodes", min=1)},)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch says to its own developers while it records a model; onnxscript 0.6 prints on stdout."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
