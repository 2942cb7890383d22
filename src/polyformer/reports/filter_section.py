"""The section of a report on filters: charts, a table of kinds, and how shares go with degree and homophily."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyformer.filters import BANDS, local_homophily
from polyformer.reports import charts
from polyformer.reports.outcome import Outcome

__all__ = ["filter_figures", "kinds_of_filters", "relations"]


def filter_figures(outcome: Outcome) -> dict[str, tuple[Any, str, str]]:
    """Spectra of input and output, and the filters that the model has."""
    figures: dict[str, tuple[Any, str, str]] = {}
    if outcome.spectra:
        note = "Where on the spectrum the energy of the features and of the predictions lies; low λ is smooth."
        figures["spectrum"] = charts.spectrum_chart(outcome.spectra), "Spectrum of input and output", note
    if outcome.filters is not None:
        note = "Mean over heads, with one standard deviation over the nodes of the kind."
        figures["clusters"] = charts.cluster_chart(outcome.filters), "Kinds of filters", note
        note = "Share of each order in the filters of a kind: Σ |α_k| ‖g_k‖ over heads."
        figures["orders"] = charts.order_chart(outcome.filters), "What each order contributes", note
    if outcome.unified is not None:
        note = "This model has the same filter for every node."
        if len(outcome.unified) > 8:
            note = f"This model has the same {len(outcome.unified)} filters for every node; the first eight are shown."
        figures["unified"] = charts.unified_chart(outcome.unified), "The filter of all nodes", note
    return figures


def kinds_of_filters(outcome: Outcome) -> list[dict[str, Any]]:
    """A row for each kind of filter: size, shares, degree, and where there are classes, homophily and these."""
    if outcome.filters is None:
        return []
    filters, task, shown = outcome.filters, outcome.task, outcome.shown
    degree, labels, rows = outcome.degrees, task.labels[shown], []
    homophily = None if task.is_regression else local_homophily(task.graph, task.labels, shown)
    for c in range(len(filters.clusters.centres)):
        inside = filters.cluster == c
        if not inside.any():
            continue
        row: dict[str, Any] = {"name": f"kind {c + 1}", "size": int(inside.sum()), "share": float(inside.mean())}
        row |= {name: float(filters.bands[inside, i].mean()) for i, name in enumerate(BANDS)}
        row["degree"] = float(degree[inside].mean())
        if homophily is not None:
            known = homophily[inside][np.isfinite(homophily[inside])]
            row["homophily"] = float(known.mean()) if len(known) else None
            counts = np.bincount(labels[inside & (labels >= 0)], minlength=outcome.card.num_classes)
            names = task.shown_classes
            order = np.argsort(-counts, kind="stable")[:4]
            parts = [f"{names[i]} ({counts[i] / max(counts.sum(), 1):.0%})" for i in order if counts[i]]
            row["classes"] = ", ".join(parts)
        rows.append(row)
    return rows


def relations(outcome: Outcome) -> list[dict[str, Any]]:
    """Rank correlation of each share with degree and local homophily; None where one of them does not vary."""
    if outcome.filters is None:
        return []
    from scipy.stats import rankdata

    graph, shown = outcome.task.graph, outcome.shown
    against = {"degree": outcome.degrees.astype(np.float64)}
    if not outcome.task.is_regression:
        against["local homophily"] = local_homophily(graph, outcome.task.labels, shown)

    def correlation(share: np.ndarray, other: np.ndarray) -> float | None:
        known = np.isfinite(other)
        if known.sum() < 3 or np.ptp(other[known]) == 0 or np.ptp(share[known]) == 0:
            return None
        return float(np.corrcoef(rankdata(share[known]), rankdata(other[known]))[0, 1])

    return [
        {"name": f"{name}-pass share"}
        | {to: correlation(outcome.filters.bands[:, i], other) for to, other in against.items()}
        for i, name in enumerate(BANDS)
    ]
