"""What a run was asked to be: which data, which model, which settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.columns import columns_to_read
from polyformer.datasets import data_name, load_source
from polyformer.errors import InvalidParameter
from polyformer.feature_preparation import prepare_task, prepare_task_alike
from polyformer.files import array_digest
from polyformer.models import MODELS
from polyformer.nn.checks import check_at_least
from polyformer.presets import load_preset
from polyformer.progress import Stages
from polyformer.settings import split_settings
from polyformer.splits import Split, hold_out
from polyformer.tasks import Task, check_trainable
from polyformer.tokens import open_tokens
from polyformer.training.saved_model import ModelCard
from polyformer.training.settings import TrainingSettings

__all__ = ["RunRequest", "data_sentence", "describe_task", "load_task"]


@dataclass(frozen=True)
class RunRequest:
    """What the user asked for; with the data it determines the run.

    Attributes:
        data: a data set's name or a path.
        settings: settings of the model and of the training that differ from preset and defaults.
        tokens: a token directory to train from.
        memory: bytes that may be used; 80 % of what is free at the start by default.
    """

    data: str = "minefield"
    model: str = "polyformer"
    data_root: str | None = None
    protocol: str | None = None
    split: int = 0
    seed: int = 0
    device: str = "auto"
    preset: str | None = None
    settings: dict[str, Any] | None = None
    tokens: str | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        check_at_least(0, seed=self.seed)

    @classmethod
    def of_run(cls, config: Mapping[str, Any]) -> RunRequest:
        """What the run with this ``config.json`` was asked for; its settings stand for those of its preset.

        The preset's file may have changed since. Versions that did not scale features had no setting for that.
        """
        stored = {field.name: config[field.name] for field in fields(cls)}
        settings = {"scale_features": "none", **(config["settings"] or {})}
        return cls(**stored | {"preset": None, "settings": settings})

    def asked_settings(self) -> dict[str, Any]:
        """Those of the preset and those asked for."""
        asked = dict(self.settings or {})
        if self.preset is None:
            return asked
        return load_preset(self.preset, data_name(self.data), asked.get("basis"), self.model) | asked

    def resolve_settings(self) -> dict[str, Any]:
        """Every setting: defaults, those of the model, of the token directory, of the preset, and those asked for."""
        kind, asked = MODELS[self.model], self.asked_settings()
        if self.tokens is not None:
            asked = _view_settings(self.tokens, self.model, kind.settings_type, asked) | asked
        parts = split_settings([kind.settings_type, TrainingSettings], {**kind.training_defaults, **asked})
        return {name: value for part in parts for name, value in asdict(part).items()}


def _view_settings(tokens: str, model: str, kind: type, asked: dict[str, Any]) -> dict[str, Any]:
    """Basis, order and self-loops of a token directory: its view, unless another basis was asked for."""
    if not {"basis", "order", "self_loops"} <= {field.name for field in fields(kind)}:
        raise InvalidParameter(f"The model '{model}' reads no tokens. Got '{tokens}'. Leave --tokens out.")
    stored = open_tokens(tokens, asked.get("basis"))
    view = {"order": stored.order, "self_loops": stored.self_loops}
    return view if "basis" in asked else view | {"basis": stored.manifest["view"]}


def load_task(
    request: RunRequest,
    loading: Stages | None = None,
    report: Callable[[str], None] | None = None,
    card: ModelCard | None = None,
) -> tuple[Task, Split]:
    """The task and the split of the request; validation nodes are drawn from training where there are none.

    Args:
        report: is told what was taken as what, and what was done to the features.
        card: of a run that was started: its features are read as the run read them; by default they are prepared anew.
    """
    columns = None if card is None else columns_to_read(card.columns)
    task = load_source(
        request.data, request.data_root, request.protocol, progress=loading, report=report, columns=columns
    )
    settings = request.resolve_settings()
    if not task.splits:
        raise InvalidParameter(f"'{request.data}' has no labelled splits, so nothing can be trained on it.")
    if not 0 <= request.split < len(task.splits):
        count = len(task.splits)
        numbers = "one split, number 0" if count == 1 else f"{count} splits, numbers 0 to {count - 1}"
        raise InvalidParameter(f"'{Path(request.data).name}' has {numbers}. Got {request.split}.")
    metric = settings["metric"]
    if metric != "default":
        task = replace(task, metric=metric)
    if card is None:
        task = prepare_task(task, settings["scale_features"], report)
    else:
        task = prepare_task_alike(task, card.columns, card.scaling)
    split = task.splits[request.split]
    if len(split.val) == 0:
        train, val = hold_out(split.train, task.labels, seed=request.seed)
        split = Split(train, val, split.test)
    check_trainable(task, split)
    return task, split


def describe_task(task: Task, split: Split) -> dict[str, Any]:
    """The facts about the data that the run's record keeps."""
    parts = split.train, split.val, split.test
    return {
        "name": task.name,
        "protocol": task.protocol,
        "fingerprint": task.graph.fingerprint,
        "labels": array_digest(*parts, task.labels[np.concatenate(parts)]),
        "nodes": task.graph.num_nodes,
        "edges": task.graph.num_edges,
        "features": task.graph.num_features,
        "classes": task.num_classes,
        "train": len(split.train),
        "val": len(split.val),
        "test": len(split.test),
        "preprocessing": list(task.preprocessing),
    }


def data_sentence(facts: dict[str, Any]) -> str:
    """What :func:`describe_task` found, for people.

    >>> data_sentence({"name": "grid", "nodes": 10_000, "edges": 19_800, "features": 1, "classes": 0})
    'grid: 10,000 nodes, 19,800 edges, 1 feature, real values to predict'
    """
    counts = [f"{facts[name]:,} {name if facts[name] != 1 else name[:-1]}" for name in ("nodes", "edges", "features")]
    asked = f"{facts['classes']} classes" if facts["classes"] else "real values to predict"
    return f"{facts['name']}: {', '.join([*counts, asked])}"
