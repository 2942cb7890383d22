"""The charts of a report as Plotly figures, in colours that colour-blind readers can tell apart."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from polyformer.filters import Filters, frequency_grid
from polyformer.metrics import calibration_bins
from polyformer.reports.importance import Importance

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = [
    "PALETTE",
    "ModelCost",
    "calibration_chart",
    "cluster_chart",
    "cluster_curves",
    "confusion_chart",
    "cost_chart",
    "fit_chart",
    "importance_chart",
    "kind_curves",
    "learning_chart",
    "nodes_chart",
    "order_chart",
    "overlay_chart",
    "preparation_chart",
    "roc_chart",
    "spectrum_chart",
    "unified_chart",
    "validation_chart",
]

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#999999", "#B8A900")
"""Okabe and Ito's colours, the yellow darkened so that it is seen on white."""

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_FREQUENCY = "frequency λ"
_INK = "#1b1f24"


@dataclass(frozen=True)
class ModelCost:
    """What a model reached and what it took.

    Attributes:
        seconds: seconds of training.
        preparation: seconds before the first training step.
        memory: the peak, in bytes.
    """

    name: str
    score: float
    seconds: float
    preparation: float
    memory: int


def _figure(x: str, y: str, **layout: Any) -> go.Figure:
    import plotly.graph_objects as go

    axes = {"xaxis": {"title": {"text": x}, "automargin": True}, "yaxis": {"title": {"text": y}, "automargin": True}}
    legend = {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0}
    figure = go.Figure(layout={"template": "none", "margin": {"l": 56, "r": 16, "t": 36, "b": 48}, "legend": legend})
    return figure.update_layout(axes).update_layout(layout)


def _line(figure: go.Figure, x: Any, y: Any, name: str, index: int, **more: Any) -> None:
    line = {"color": PALETTE[index % len(PALETTE)], "dash": _DASHES[index % len(_DASHES)], "width": 2}
    figure.add_scatter(**{"x": x, "y": y, "name": html.escape(name), "mode": "lines", "line": line} | more)


def _band(figure: go.Figure, x: np.ndarray, least: np.ndarray, most: np.ndarray, index: int) -> None:
    red, green, blue = (int(PALETTE[index % len(PALETTE)][i : i + 2], 16) for i in (1, 3, 5))
    figure.add_scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([most, least[::-1]]),
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},0.15)",
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
    )


def learning_chart(metrics: Sequence[dict[str, Any]], metric: str, best_epoch: int | None) -> go.Figure:
    """Loss and validation score by epoch, the selected epoch marked; of at most 1,000 epochs."""
    metrics = metrics[:: -(-len(metrics) // 1000)]
    epochs = [record["epoch"] for record in metrics]
    right = {
        "title": {"text": f"validation {metric}"},
        "overlaying": "y",
        "side": "right",
        "tickmode": "auto",
        "automargin": True,
    }
    figure = _figure("epoch", "training loss", yaxis2=right)
    _line(figure, epochs, [record["loss"] for record in metrics], "loss", 0)
    _line(figure, epochs, [record["val"] for record in metrics], f"validation {metric}", 1, yaxis="y2")
    if best_epoch is not None:
        figure.add_vline(x=best_epoch, line={"dash": "dot", "color": "#999999"})
    return figure


def confusion_chart(predicted: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> go.Figure:
    """Share of each class that is predicted as each; classes (n,) and labels (n,)."""
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (labels, predicted), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    escaped = [html.escape(name) for name in names]
    figure = _figure("predicted", "class")
    figure.update_yaxes(autorange="reversed", type="category").update_xaxes(type="category")
    few = len(names) <= 12
    text = {"text": counts, "texttemplate": "%{text}"} if few else {}
    scale = [[0.0, "#f4f7fa"], [1.0, PALETTE[0]]]
    figure.add_heatmap(z=shares, x=escaped, y=escaped, zmin=0, zmax=1, colorscale=scale, showscale=not few, **text)
    return figure


def roc_chart(scores: np.ndarray, labels: np.ndarray) -> go.Figure:
    """The share of positives found against the share of false alarms."""
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(labels, scores[:, 1])
    figure = _figure("false positive rate", "true positive rate")
    _line(figure, false, true, "model", 0)
    _line(figure, [0, 1], [0, 1], "chance", 6)
    return figure


def fit_chart(scores: np.ndarray, labels: np.ndarray) -> go.Figure:
    """Predicted against true values, of at most 2,000 nodes."""
    step = max(1, len(labels) // 2000)
    figure = _figure("value", "prediction")
    marker = {"color": PALETTE[0], "size": 4, "opacity": 0.5}
    figure.add_scatter(x=labels[::step], y=scores[::step, 0], mode="markers", marker=marker, name="nodes")
    ends = [float(labels.min()), float(labels.max())]
    _line(figure, ends, ends, "equal", 6)
    return figure


def calibration_chart(scores: np.ndarray, labels: np.ndarray) -> go.Figure:
    """How often the most probable class is right, by its probability."""
    mean, right, count = calibration_bins(scores, labels)
    figure = _figure("probability", "share that is right")
    marker = {"color": PALETTE[0], "size": 6 + 18 * np.sqrt(count / count.max())}
    figure.add_scatter(x=mean, y=right, mode="markers+lines", marker=marker, name="nodes", text=count)
    _line(figure, [0, 1], [0, 1], "perfect", 6)
    return figure


def importance_chart(importance: Importance, metric: str, most: int = 15) -> go.Figure:
    """The loss of score when a column is shuffled, for the ``most`` columns that matter most."""
    shown = slice(None, most)
    names = [name if len(name) <= 24 else f"{name[:23]}…" for name in importance.names[shown]]
    figure = _figure(f"loss of {metric}", "")
    figure.update_yaxes(autorange="reversed", tickmode="array", tickvals=[*range(len(names))])
    figure.update_yaxes(ticktext=[html.escape(name) for name in names])  # two long names may be cut to the same
    spread = {"type": "data", "array": importance.spread[shown], "color": "#999999", "thickness": 1.5}
    colour = {"color": PALETTE[0]}
    rows = np.arange(len(names))
    figure.add_bar(x=importance.losses[shown], y=rows, orientation="h", error_x=spread, marker=colour, name="loss")
    return figure


def spectrum_chart(spectra: dict[str, np.ndarray]) -> go.Figure:
    """Density of energy over λ."""
    figure = _figure(_FREQUENCY, "share of energy per unit of λ")
    figure.update_yaxes(type="log", exponentformat="power", dtick=1)
    for i, (name, density) in enumerate(spectra.items()):
        _line(figure, frequency_grid(len(density)), np.maximum(density, 1e-4), name, i)
    return figure


def cluster_curves(filters: Filters) -> tuple[np.ndarray, np.ndarray]:
    """Mean response and standard deviation of each cluster: its mean over heads, then each head, (C, 1+H, L)."""
    return kind_curves(filters.responses, filters.cluster, len(filters.clusters.centres))


def kind_curves(responses: np.ndarray, cluster: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """:func:`cluster_curves` of responses (n, H, L) whose clusters (n,) are of so many kinds."""
    curves = np.concatenate([responses.mean(axis=1, keepdims=True), responses], axis=1)  # (n, 1+H, L)
    groups = [curves[cluster == c] for c in range(count)]
    empty = np.zeros((1, *curves.shape[1:]))
    groups = [group if len(group) else empty for group in groups]
    return np.stack([group.mean(axis=0) for group in groups]), np.stack([group.std(axis=0) for group in groups])


def cluster_chart(
    filters: Filters,
    names: Sequence[str] | None = None,
    references: Mapping[str, np.ndarray] | None = None,
    matched: Sequence[str] = (),
) -> go.Figure:
    """Each cluster's mean response, averaged over heads, with one standard deviation to each side.

    Args:
        names: names of the clusters; by default their numbers and sizes.
        references: at most two responses (L,) of largest gain one; then those of clusters are scaled to that too.
        matched: the reference that each cluster is to be compared with, which gives its sign.
    """
    mean, spread = (curves[:, 0] for curves in cluster_curves(filters))  # (C, L)
    if names is None:
        sizes = np.bincount(filters.cluster, minlength=len(mean))
        names = [f"kind {c + 1} ({size:,} nodes)" for c, size in enumerate(sizes)]
    figure = _figure(_FREQUENCY, "response h(λ)" if references is None else "response, scaled")
    figure.update_yaxes(rangemode="tozero")  # zero is what tells an ignored frequency, and it keeps like curves alike
    if references is not None:
        likeness = [float((row - row.mean()) @ references[name]) for row, name in zip(mean, matched, strict=True)]
        peak = np.abs(mean).max(axis=1, keepdims=True)
        peak[peak == 0] = 1.0
        mean, spread = mean / peak * np.where(np.array(likeness) < 0, -1.0, 1.0)[:, None], spread / peak
    for c, name in enumerate(names):
        _band(figure, filters.lam, mean[c] - spread[c], mean[c] + spread[c], c)
        _line(figure, filters.lam, mean[c], name, c)
    for dash, (name, response) in zip(("dot", "dashdot"), (references or {}).items(), strict=False):
        _line(figure, filters.lam, response, name, 0, line={"color": _INK, "dash": dash, "width": 1.5})
    return figure


def order_chart(filters: Filters) -> go.Figure:
    """How much each order contributes, by cluster."""
    figure = _figure("order k", "share of the filter", barmode="group")
    for c in range(len(filters.clusters.centres)):
        rows = filters.contributions[filters.cluster == c]
        if len(rows):
            colour = {"color": PALETTE[c % len(PALETTE)]}
            figure.add_bar(x=np.arange(rows.shape[1]), y=rows.mean(axis=0), name=f"kind {c + 1}", marker=colour)
    return figure


def validation_chart(curves: Mapping[str, Sequence[dict[str, Any]]]) -> go.Figure:
    """The validation score of several runs by epoch, of at most 1,000 epochs each."""
    figure = _figure("epoch", "validation score")
    for i, (name, metrics) in enumerate(curves.items()):
        some = metrics[:: -(-len(metrics) // 1000) or 1]
        _line(figure, [record["epoch"] for record in some], [record["val"] for record in some], name, i)
    return figure


def overlay_chart(responses: dict[str, np.ndarray]) -> go.Figure:
    """Filters of several runs, each scaled to a largest gain of one: mean and spread over (n, L) nodes or filters."""
    figure = _figure(_FREQUENCY, "response, scaled")
    for i, (name, rows) in enumerate(responses.items()):
        lam, mean, spread = frequency_grid(rows.shape[1]), rows.mean(axis=0), rows.std(axis=0)
        scale = np.abs(mean).max() or 1.0
        if len(rows) > 1:
            _band(figure, lam, (mean - spread) / scale, (mean + spread) / scale, i)
        _line(figure, lam, mean / scale, name, i)
    return figure


def cost_chart(costs: Sequence[ModelCost], metric: str) -> go.Figure:
    """Score against training time; the area of a circle is the peak of memory."""
    figure = _figure("training time in seconds", f"test {metric}")
    figure.update_xaxes(type="log")
    most = max((cost.memory for cost in costs), default=1)
    for i, cost in enumerate(costs):
        size = 50 * float(np.sqrt(cost.memory / most))
        _marker(figure, max(cost.seconds, 1e-3), cost.score, cost.name, cost.name, i, size)
    figure.update_layout(legend={"itemsizing": "constant"})
    return figure


def preparation_chart(costs: Sequence[ModelCost]) -> go.Figure:
    """What each model takes before its first step, the slowest on top."""
    figure = _figure("preprocessing time in seconds", "")
    figure.update_xaxes(type="log")
    for i in sorted(range(len(costs)), key=lambda i: costs[i].preparation):
        seconds, name = costs[i].preparation, costs[i].name
        text = f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
        _marker(figure, max(seconds, 1e-3), html.escape(name), name, text, i, 11)
    return figure


def _marker(figure: go.Figure, x: float, y: Any, name: str, text: str, index: int, size: float) -> None:
    """One point; its text is shown on hovering, and beside the point on pages without hovering."""
    marker = {"size": size, "color": PALETTE[index % len(PALETTE)], "opacity": 0.75}
    figure.add_scatter(x=[x], y=[y], name=html.escape(name), text=[html.escape(text)], mode="markers", marker=marker)


def nodes_chart(lam: np.ndarray, responses: np.ndarray, nodes: Sequence[int]) -> go.Figure:
    """The responses of some nodes, (n, L)."""
    figure = _figure(_FREQUENCY, "response h(λ)")
    for i, (node, response) in enumerate(zip(nodes, responses, strict=True)):
        _line(figure, lam, response, f"node {node}", i, showlegend=True)
    return figure


def unified_chart(responses: np.ndarray, most: int = 8) -> go.Figure:
    """The filters that all nodes share, the first ``most`` of them."""
    figure = _figure(_FREQUENCY, "response h(λ)")
    for i, response in enumerate(responses[:most]):
        name = "all nodes" if len(responses) == 1 else f"filter {i + 1}"
        _line(figure, frequency_grid(len(response)), response, name, i, showlegend=True)
    return figure
