"""Several runs side by side: scores with intervals, curves, and filters of one kind against the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from polyformer.errors import InvalidParameter
from polyformer.files import finite
from polyformer.metrics import METRICS
from polyformer.reports import charts
from polyformer.reports.document import check_extra, write_page
from polyformer.reports.findings import Findings
from polyformer.reports.sections import Figures, score_rows

__all__ = ["write_comparison"]


def write_comparison(runs: Sequence[Findings], path: Path) -> int:
    """Write one document on two runs or more, whole or not at all; returns its size in bytes."""
    check_extra()
    if len(runs) < 2:
        raise InvalidParameter(f"'RUN' must be given twice or more to compare. Got {len(runs)}. Use polyformer report.")
    names = _names(runs)
    notes = [f"{name}: {note}" for name, entry in zip(names, runs, strict=True) for note in entry.notes]
    if len({entry.run.facts.fingerprint.partition("+")[0] for entry in runs}) > 1:
        notes.insert(0, "The runs are on different data: their scores do not compare.")
    rows = [_row(name, entry) for name, entry in zip(names, runs, strict=True)]
    return write_page(path, "compare.html", _figures(names, runs), None, {"runs": rows, "notes": notes})


def _names(runs: Sequence[Findings]) -> list[str]:
    """The directories' names, with as many of the folders above as tell them apart; numbers where nothing does."""
    paths = [entry.run.path.resolve() for entry in runs]
    for depth in range(1, max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {path.name}" for number, path in enumerate(paths, 1)]


def _row(name: str, entry: Findings) -> dict[str, str]:
    request, scores = entry.run.request, {row["name"]: row for row in score_rows(entry.run)}
    test, guessing, validation = (scores.get(name) for name in ("test", "guessing", "validation"))
    interval = None if test is None else test["interval"]
    return {
        "name": name,
        "model": request.model,
        "data": entry.run.facts.name,
        "split": str(request.split),
        "seed": str(request.seed),
        "metric": entry.run.card.metric,
        "guessing": "–" if guessing is None else f"{guessing['value']:.4f}",
        "test": "–" if test is None else f"{test['value']:.4f}",
        "interval": "–" if interval is None else f"{interval[0]:.4f} to {interval[1]:.4f}",
        "validation": "–" if validation is None else f"{validation['value']:.4f}",
    }


def _figures(names: Sequence[str], runs: Sequence[Findings]) -> Figures:
    curves = {name: entry.run.metrics for name, entry in zip(names, runs, strict=True) if entry.run.metrics}
    note = "The validation score of every epoch."
    figures: Figures = {"validation": (charts.validation_chart(curves), "Validation", note)}
    costs, metrics = _costs(names, runs), {entry.run.card.metric for entry in runs}
    if costs and len(metrics) == 1:
        note = "The area of a circle is the peak of the process's memory."
        figures["costs"] = charts.cost_chart(costs, METRICS[metrics.pop()].title), "Score, time and memory", note
    responses: dict[str, np.ndarray] = {}
    for i, (name, entry) in enumerate(zip(names, runs, strict=True)):
        outcome = entry.outcome
        if outcome is not None and outcome.filters is not None:
            responses[name] = outcome.filters.responses.mean(axis=1)
            note = "Node-wise: kinds of filters, mean over heads, with one standard deviation over the nodes."
            if not outcome.filters.exact:
                note += " Residual and LayerNorm are left out."
            figures[f"run-{i}"] = charts.cluster_chart(outcome.filters), name, note
        elif outcome is not None and outcome.unified is not None:
            responses[name] = outcome.unified
            figures[f"run-{i}"] = charts.unified_chart(outcome.unified), name, "The same for all nodes."
    if responses:
        note = "Mean over nodes, or over the model's filters, each scaled to a largest gain of one; spread as a band."
        figures["overlay"] = charts.overlay_chart(responses), "Filters against each other", note
    return figures


def _costs(names: Sequence[str], runs: Sequence[Findings]) -> list[charts.ModelCost]:
    """The costs of the runs that are finished and have a test score."""
    costs = []
    for name, entry in zip(names, runs, strict=True):
        result = entry.run.result
        if result is not None and finite(result["test"]) is not None:
            seconds = result["seconds"], result["preparation_seconds"]
            costs.append(charts.ModelCost(name, result["test"], *seconds, result["peak_memory_bytes"]))
    return costs
