"""How long a run will take: an estimate from sizes, corrected by what finished runs took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from polyformer.datasets import DATASETS, data_name
from polyformer.experiments.plan import Job
from polyformer.machine_speed import DENSE_PRODUCTS_PER_SECOND, START_SECONDS
from polyformer.models import MODELS
from polyformer.settings import split_settings
from polyformer.training.settings import TrainingSettings

__all__ = ["Costs", "estimate_seconds"]

_EDGE, _PAIR = 10, 4
_EPOCHS_PER_PATIENCE = 2
_PASSES_PER_SEARCH = 110
_WIDE = 500
"""Features of more columns than this are sparse."""

_TYPICAL = (10_000, 40_000, 10, 2)
"""Nodes, edges, features and classes that are assumed of a graph of unknown size."""


def estimate_seconds(job: Job) -> float:
    """Estimate a run from the sizes of data and model, on one core; good for ordering runs, not for a clock.

    In a pass, every weight is multiplied by every token, or by every node if the model has no tokens. Every edge
    carries a row as wide as the narrower side of a layer, or as the classes of a polynomial filter. A model that
    compares all nodes also works on every pair of nodes.
    """
    request = job.request
    settings, kind = request.resolve_settings(), MODELS[request.model]
    nodes, edges, features, classes = _sizes(request.data)
    own, training = split_settings([kind.settings_type, TrainingSettings], settings)
    passes = min(training.epochs, _EPOCHS_PER_PATIENCE * training.patience)
    if training.optimizer == "lbfgs":
        passes *= _PASSES_PER_SEARCH
    features, hidden, layers = min(features, _WIDE), own.hidden_channels, settings.get("num_layers", 1)
    hops = settings.get("order", 2) + 1
    if kind.reads_tokens:
        weights = features + layers * hidden * (2 * settings.get("mlp_ratio", 1.0) + 4)
        work = nodes * hops * weights + edges * hops
    else:
        weights = sum(parameter.numel() for parameter in kind(features, max(1, classes), own).parameters()) / hidden
        carried = classes if kind.carries_outputs else min(hidden, max(features, classes))
        work = nodes * weights + _EDGE * edges * hops * (hidden if layers > 2 else carried) / hidden
        work += _PAIR * layers * nodes**2 if kind.compares_all_nodes else 0
    return START_SECONDS + passes * 6 * hidden * work / DENSE_PRODUCTS_PER_SECOND


def _sizes(data: str) -> tuple[int, int, int, int]:
    name = data_name(data)
    counts = DATASETS[name].counts if name in DATASETS else None
    return _TYPICAL if counts is None else (counts.nodes, counts.edges, counts.features, counts.classes)


class Costs:
    """Estimates how long runs take; every finished run makes the estimates better."""

    def __init__(self) -> None:
        self._measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self._ratios: list[float] = []
        self._estimates: dict[tuple[str, ...], float] = {}

    def measure(self, job: Job, record: dict[str, Any]) -> None:
        """Learn from a finished run."""
        result = record["result"]
        seconds = result["seconds"] + result["preparation_seconds"] + START_SECONDS
        self._measured[job.series.key].append(seconds)
        self._ratios.append(seconds / self._estimate(job))

    def seconds(self, job: Job) -> float:
        """The mean over finished runs of the series; without any, the estimate corrected by its error on other runs."""
        measured = self._measured.get(job.series.key)
        if measured:
            return statistics.fmean(measured)
        return self._estimate(job) * (statistics.median(self._ratios) if self._ratios else 1.0)

    def _estimate(self, job: Job) -> float:
        if job.series.key not in self._estimates:
            self._estimates[job.series.key] = estimate_seconds(job)
        return self._estimates[job.series.key]
