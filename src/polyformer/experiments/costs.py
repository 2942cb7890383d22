"""How long a run will take: an estimate from sizes, corrected by what finished runs took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from polyformer.baselines.polynomial import PolynomialModel
from polyformer.datasets import DATASETS, data_name
from polyformer.experiments.plan import Job
from polyformer.models import MODELS
from polyformer.models.token_model import TokenModel
from polyformer.settings import split_settings
from polyformer.training.settings import TrainingSettings

__all__ = ["Costs", "estimate_seconds"]

_FLOPS = 3e10
_EDGE, _PAIR = 10, 4
_START_SECONDS = 5.0
_EPOCHS_PER_PATIENCE = 2
_PASSES_PER_SEARCH = 110
_WIDE = 500
"""Features beyond so many are sparse."""

_TYPICAL = (10_000, 40_000, 10, 2)
"""Nodes, edges, features and classes of a graph of which none are known."""


def estimate_seconds(job: Job) -> float:
    """From the sizes of data and model, on one core of a common machine; good for an order, not for a clock.

    A weight meets every token, or every node of a model without tokens, once in a pass; edges carry rows as wide as the
    narrower side of a layer, and the classes of a polynomial filter; where all nodes are compared, so do their pairs.
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
    if issubclass(kind, TokenModel):
        weights = features + layers * hidden * (2 * settings.get("mlp_ratio", 1.0) + 4)
        work = nodes * hops * weights + edges * hops
    else:
        weights = sum(parameter.numel() for parameter in kind(features, max(1, classes), own).parameters()) / hidden
        carried = classes if issubclass(kind, PolynomialModel) else min(hidden, max(features, classes))
        work = nodes * weights + _EDGE * edges * hops * (hidden if layers > 2 else carried) / hidden
        work += _PAIR * layers * nodes**2 if kind.compares_all_nodes else 0
    return _START_SECONDS + passes * 6 * hidden * work / _FLOPS


def _sizes(data: str) -> tuple[int, int, int, int]:
    name = data_name(data)
    counts = DATASETS[name].counts if name in DATASETS else None
    return _TYPICAL if counts is None else (counts.nodes, counts.edges, counts.features, counts.classes)


class Costs:
    """What runs take; the more have finished, the better it knows."""

    def __init__(self) -> None:
        self._measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self._ratios: list[float] = []
        self._estimates: dict[tuple[str, ...], float] = {}

    def measure(self, job: Job, record: dict[str, Any]) -> None:
        """Learn from a finished run."""
        result = record["result"]
        seconds = result["seconds"] + result["preparation_seconds"] + _START_SECONDS
        self._measured[job.series.key].append(seconds)
        self._ratios.append(seconds / self._estimate(job))

    def seconds(self, job: Job) -> float:
        """The mean of the same series' runs, or the estimate, corrected by how far it was off for others."""
        measured = self._measured.get(job.series.key)
        if measured:
            return statistics.fmean(measured)
        return self._estimate(job) * (statistics.median(self._ratios) if self._ratios else 1.0)

    def _estimate(self, job: Job) -> float:
        if job.series.key not in self._estimates:
            self._estimates[job.series.key] = estimate_seconds(job)
        return self._estimates[job.series.key]
