"""What a run was asked to be: which data, which model, which settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from polyformer.datasets import data_name
from polyformer.errors import InvalidParameter
from polyformer.models import MODELS
from polyformer.parameter_checks import check_at_least
from polyformer.presets import load_preset
from polyformer.runs.default_settings import defaults_for
from polyformer.runs.options import RunOptions
from polyformer.settings import split_settings
from polyformer.tokens import open_tokens
from polyformer.training.settings import TrainingSettings

__all__ = ["RunRequest"]


@dataclass(frozen=True)
class RunRequest(RunOptions):
    """What the user asked for; with the data it determines the run."""

    def __post_init__(self) -> None:
        check_at_least(0, seed=self.seed)

    def asked_settings(self) -> dict[str, Any]:
        """Settings of the preset, and over them those that the user asked for."""
        asked = dict(self.settings or {})
        if self.preset is None:
            return asked
        return load_preset(self.preset, data_name(self.data), asked.get("basis"), self.model) | asked

    def few_label_defaults(self, num_train: int) -> dict[str, Any]:
        """The defaults that so many training nodes change; none with a preset, and none that was asked for."""
        if self.preset is not None:
            return {}
        kind, asked = MODELS[self.model], self.asked_settings()
        usual = defaults_for(kind, None)
        fitting = defaults_for(kind, num_train, asked)
        return {name: value for name, value in fitting.items() if value != usual.get(name) and name not in asked}

    def resolve_settings(self, num_train: int | None = None) -> dict[str, Any]:
        """Every setting: defaults, those of the model, of the token directory, of the preset, and those asked for.

        Args:
            num_train: the number of training nodes, if the data is known: few of them have other defaults, unless there
                is a preset.
        """
        kind, asked = MODELS[self.model], self.asked_settings()
        if self.tokens is not None:
            asked = _view_settings(self.tokens, self.model, kind.settings_type, asked) | asked
        defaults = defaults_for(kind, num_train if self.preset is None else None, asked)
        parts = split_settings([kind.settings_type, TrainingSettings], {**defaults, **asked})
        return {name: value for part in parts for name, value in asdict(part).items()}


def _view_settings(tokens: str, model: str, kind: type, asked: dict[str, Any]) -> dict[str, Any]:
    """Basis, order and self-loops of a token directory: its view, unless another basis was asked for."""
    if not {"basis", "order", "self_loops"} <= {field.name for field in fields(kind)}:
        raise InvalidParameter(f"The model '{model}' reads no tokens. Got '{tokens}'. Leave --tokens out.")
    stored = open_tokens(tokens, asked.get("basis"))
    view = {"order": stored.order, "self_loops": stored.self_loops}
    return view if "basis" in asked else view | {"basis": stored.manifest["view"]}
