"""How long a run will take: an estimate from sizes, corrected by what finished runs took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from polyformer.datasets import DATASETS
from polyformer.experiments.plan import Job
from polyformer.models import MODELS
from polyformer.registry import parse_spec

__all__ = ["Costs", "estimate_seconds"]

_FLOPS = 1e10
_START_SECONDS = 5.0
_EPOCHS_PER_PATIENCE = 2
_PASSES_PER_SEARCH = 110


def estimate_seconds(job: Job) -> float:
    """From the sizes of data and model, on one core of a common machine; good for an order, not for a clock."""
    request = job.request
    settings = request.resolve_settings()
    counts = DATASETS[parse_spec(request.data)[0]].counts
    nodes, edges, features = (10_000, 40_000, 10) if counts is None else (counts.nodes, counts.edges, counts.features)
    hidden, tokens = settings.get("hidden_channels", 64), settings.get("order", 2) + 1
    layers, ratio = settings.get("num_layers", 1), settings.get("mlp_ratio", 1.0)
    passes = min(settings["epochs"], _EPOCHS_PER_PATIENCE * settings["patience"])
    if settings["optimizer"] == "lbfgs":
        passes *= _PASSES_PER_SEARCH
    per_token = min(features, 500) + layers * hidden * (2 * ratio + 4)  # wide features are sparse
    pairs = layers * nodes**2 if MODELS[request.model].compares_all_nodes else 0
    return _START_SECONDS + passes * 6 * hidden * (nodes * tokens * per_token + edges * tokens + pairs) / _FLOPS


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
