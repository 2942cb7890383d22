"""Runs that begin with the weights of another run: its settings, its way of reading features, its parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polyformer.errors import InvalidParameter
from polyformer.files import read_tensors
from polyformer.files.run_schemas import WEIGHTS as WEIGHTS_SCHEMA
from polyformer.models import NodeModel
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.runs.saved_model import WEIGHTS, ModelCard

__all__ = ["load_start", "starting_from", "with_start_units"]


def starting_from(request: RunRequest, run: Path, model: str | None = None) -> RunRequest:
    """The request with the model and the settings of a run, except those that were asked for.

    Args:
        run: the run whose weights the new run begins with.
        model: the model that was asked for, if one was.
    """
    opened = Run.open(run)
    name = opened.card.model
    if model not in (None, name):
        raise InvalidParameter(
            f"'--start-from' must be a run of the model '{model}'. Got '{run}', a run of '{name}'. Leave --model out."
        )
    settings = opened.card.settings | request.asked_settings()
    return replace(request, model=name, preset=None, settings=settings, start_from=str(Path(run).resolve()))


def with_start_units(card: ModelCard, start: ModelCard) -> ModelCard:
    """The card whose real-valued outputs have the units of the run that it starts from."""
    return replace(card, units=start.units)


def load_start(model: NodeModel, run: Path) -> None:
    """Give a new model the weights of a run; refuse a run whose model has other shapes."""
    if not (run / WEIGHTS).exists():
        raise InvalidParameter(f"'{run}' holds no trained model to start from. Finish that run first.")
    tensors, _ = read_tensors(run / WEIGHTS, WEIGHTS_SCHEMA)
    own = model.state_dict()
    for name in sorted(own.keys() | tensors.keys()):
        shapes = [tuple(part[name].shape) if name in part else None for part in (tensors, own)]
        if shapes[0] != shapes[1]:
            raise InvalidParameter(
                f"The model cannot start from '{run}': its '{name}' has the shape {shapes[0]}, here {shapes[1]}. The "
                f"graph has other features or classes now, or other settings were asked for. Leave --start-from out."
            )
    model.load_state_dict(tensors)
