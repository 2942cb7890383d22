"""Draw the paper's figures from the runs of their plans, with the charts of the report; numbers go beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets.image_fitting import FILTERS
from polyformer.experiments import EXPERIMENTS
from polyformer.experiments.plan import Job, Series
from polyformer.experiments.records import Records
from polyformer.files import reporting_io_errors, write_json, write_whole
from polyformer.files.run_schemas import FIGURE
from polyformer.metrics import METRICS
from polyformer.registry import parse_spec
from polyformer.reports import charts
from polyformer.reports.findings import Learned, learned_filters
from polyformer.reports.svg import Panel, draw_svg

__all__ = ["FIGURES", "Figure", "draw_figure", "write_figure"]

_TIMES = ("seconds", "preparation_seconds", "cpu_seconds", "preparation_cpu_seconds")


@dataclass(frozen=True)
class Figure:
    """An image, and the numbers that it shows as JSON."""

    svg: str
    numbers: dict[str, Any]


@dataclass(frozen=True)
class _Run:
    """A finished run, its record and, if it was kept, its model."""

    job: Job
    record: dict[str, Any]
    model: Path | None

    @property
    def series(self) -> Series:
        return self.job.series

    @property
    def data(self) -> str:
        """The data that the run was trained on, which may stand for other data of the paper."""
        return str(self.record["config"]["task"]["name"])

    @property
    def remark(self) -> str:
        """A sentence on data that stands for other data; empty if there is none."""
        parts = [] if self.series.stands_for is None else [f"{self.data} stands in for {self.series.stands_for}"]
        requested_data = parse_spec(self.series.source)[0]
        return "; ".join(
            parts if self.data == requested_data else [*parts, f"{self.data} stand in for {requested_data}"]
        )

    @property
    def cut_off(self) -> bool:
        """Whether the run ended by the limit of epochs and not by its patience, so that it might have improved."""
        return bool(self.record["result"]["epochs"] >= self.record["config"]["settings"]["epochs"])

    def facts(self) -> dict[str, Any]:
        """The facts on a run that every figure gives."""
        result = self.record["result"]
        kept = ("metric", "test", "epochs", *_TIMES, "peak_memory_bytes", "parameters")
        return {
            "model": self.series.model,
            "basis": self.series.basis,
            "dataset": self.series.dataset,
            "data": self.data,
            "stands_for": self.series.stands_for,
            **{name: result.get(name) for name in kept},
        }


def draw_figure(
    name: str,
    series: Sequence[Series],
    finished_runs: Sequence[tuple[Job, dict[str, Any]]],
    records: Records,
    data_root: Path | None = None,
) -> Figure | None:
    """A figure of the finished runs; None if none of them can be drawn.

    Args:
        finished_runs: finished runs and their records.
        records: store of the models of these runs.
    """
    order = {entry.key: i for i, entry in enumerate(series)}
    stored_runs = [_Run(job, record, records.model(job)) for job, record in finished_runs if job.series.key in order]
    runs = sorted(stored_runs, key=lambda run: (order[run.series.key], run.job.run))
    drawn = FIGURES[name](runs, data_root)
    if drawn is None:
        return None
    panels, numbers, about = drawn
    remarks = dict.fromkeys([run.series.note for run in runs] + [run.remark for run in runs if run.remark])
    notes = [about, *(f"{note[0].upper()}{note[1:]}." for note in remarks)]
    title = EXPERIMENTS[name].title
    return Figure(draw_svg(title, panels, notes), {"title": title, "notes": notes, "panels": numbers})


def write_figure(figure: Figure, folder: Path, name: str) -> Path:
    """Write ``<name>.svg`` and ``<name>.json``; returns the path of the image."""
    path = folder / f"{name}.svg"
    with reporting_io_errors("a figure", folder):
        folder.mkdir(parents=True, exist_ok=True)
        with write_whole(path) as file:
            file.write(figure.svg.encode())
        write_json(path.with_suffix(".json"), figure.numbers, FIGURE)
    return path


Drawn = tuple[list[Panel], list[dict[str, Any]], str] | None
"""Panels, the numbers that they show as JSON, and a note on how to read the panels."""


def _filter_panels(runs: Sequence[_Run], data_root: Path | None, clusters: int, by_shape: bool = False) -> Drawn:
    """A panel for the first run of each series: the kinds of filters, or the filter that all nodes share."""
    root = None if data_root is None else str(data_root)
    panels, numbers = [], []
    for run in runs:
        if run.job.run != 0 or run.model is None:
            continue
        learned = learned_filters(run.model, clusters, root, by_shape)
        chart, content = _filters(run, learned)
        metric, score = run.record["result"]["metric"], run.record["result"]["test"]
        score_text = "no score" if score is None else f"{METRICS[metric].title} {score:.4f}"
        title = f"{run.series.model} on {run.series.dataset}, {score_text}"
        panels.append(Panel(title, chart, run.remark))
        numbers.append(run.facts() | content)
    about = "Mean response of each cluster of nodes (k-means), with one standard deviation over its nodes."
    if by_shape:
        about += (
            " The read-out behind the filter sets scale, sign and offset, so clusters are of responses of unit norm, "
            "and means are scaled to a largest gain of one with the sign of the target."
        )
    return (panels, numbers, about) if panels else None


def _filters(run: _Run, learned: Learned) -> tuple[Any, dict[str, Any]]:
    """The chart of a model's filters, and the curves in it."""
    filters = learned.filters
    if filters is None:
        assert learned.unified is not None
        return charts.unified_chart(learned.unified), {"filters": learned.unified.round(5).tolist()}
    sizes = np.bincount(filters.cluster, minlength=len(filters.clusters.centres))
    mean, spread = charts.cluster_curves(filters)
    kinds = [
        {"nodes": int(size), "mean": mean[c, 0].round(5).tolist(), "spread": spread[c, 0].round(5).tolist()}
        for c, size in enumerate(sizes)
    ]
    content: dict[str, Any] = {"lam": filters.lam.round(5).tolist(), "clusters": kinds}
    targets = _targets(run, filters.lam)
    if targets is None:
        return charts.cluster_chart(filters), content
    pixels = learned.task.graph.features
    assert isinstance(pixels, np.ndarray)
    dark = pixels[learned.nodes, 0] < 0.5
    names, matched = [], []
    for c, kind in enumerate(kinds):
        kind["dark_share"] = float(dark[filters.cluster == c].mean()) if sizes[c] else 0.0
        names.append(f"cluster {c + 1} ({sizes[c]:,} pixels, {100 * kind['dark_share']:.0f} % with x < 0.5)")
        matched.append(list(targets)[0 if kind["dark_share"] > 0.5 else 1])
    content["targets"] = {name: response.round(5).tolist() for name, response in targets.items()}
    return charts.cluster_chart(filters, names, targets, matched), content


def _targets(run: _Run, lam: np.ndarray) -> Mapping[str, np.ndarray] | None:
    """The pair of filters that an image was filtered with, on a grid of λ; None for other data."""
    name = parse_spec(run.job.request.data)[1].get("filter")
    if name is None:
        return None
    dark, bright = FILTERS[str(name)]
    return {"target, x < 0.5": dark(lam), "target, x ≥ 0.5": bright(lam)}


def _cost_panels(runs: Sequence[_Run], data_root: Path | None) -> Drawn:
    """Score, time and memory of every model, averaged over its runs, and the time before training."""
    by_series: dict[tuple[str, ...], list[_Run]] = {}
    for run in runs:
        if run.record["result"]["test"] is not None:
            by_series.setdefault(run.series.key, []).append(run)
    if not by_series:
        return None
    costs, numbers = [], []
    for some in by_series.values():
        mean = {
            name: float(np.mean([run.record["result"][name] for run in some])) for name in ("test", "epochs", *_TIMES)
        }
        memory = max(run.record["result"]["peak_memory_bytes"] for run in some)
        cut_off = any(run.cut_off for run in some)
        name = f"{some[0].series.model}{' *' if cut_off else ''}"
        times = mean["cpu_seconds"], mean["preparation_cpu_seconds"]  # without other work on the machine
        costs.append(charts.ModelCost(name, mean["test"], *times, memory))
        numbers.append(some[0].facts() | mean | {"peak_memory_bytes": memory, "runs": len(some), "cut_off": cut_off})
    first = next(iter(by_series.values()))[0]
    metric = METRICS[first.record["result"]["metric"]].title
    panels = [
        Panel(f"Score, time and memory on {first.data}", charts.cost_chart(costs, metric), first.remark),
        Panel("Preprocessing before the first step", charts.preparation_chart(costs)),
    ]
    sizes = [cost.memory / 2**20 for cost in costs]
    about = (
        "Means over runs. Times are the processor's, on one thread. The area of a circle is the peak memory of the "
        f"whole process, the libraries with it: {min(sizes):,.0f} to {max(sizes):,.0f} MiB. Preprocessing is all that "
        "comes before the first step (tokens, eigenvectors, edges), computed anew in every run."
    )
    if any(content["cut_off"] for content in numbers):
        about += " * Ended by the limit of epochs, not by patience: with more time it may score higher."
    return panels, numbers, about


FIGURES: dict[str, Callable[[Sequence[_Run], Path | None], Drawn]] = {
    "fig2": partial(_filter_panels, clusters=2, by_shape=True),
    "fig3": partial(_filter_panels, clusters=5),
    "fig4": _cost_panels,
}
"""How each figure of the paper is drawn; its plans are in ``EXPERIMENTS``."""
