r"""Ranks of models over data sets, and how far apart two mean ranks must be to tell the models apart.

Friedman's test asks whether all k models are alike on n data sets. Where they are not, two models differ by Nemenyi's
test if their mean ranks are further apart than the critical difference
:math:`CD = q_{0.05} \sqrt{k (k+1) / (6 n)}`, where :math:`q_{0.05}` is the 95 % point of the studentized range of k
values divided by √2 (Demšar, JMLR 7, 2006).
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats

from polyformer.experiments.summary import Row

__all__ = ["Ranks", "critical_difference", "draw_ranks", "rank_models"]

_LEAST_DATASETS = 3
_LEAST_MODELS = 3


@dataclass(frozen=True)
class Ranks:
    """Mean ranks of models, the best first; rank 1 is the best model of a data set, ties share their mean rank.

    Attributes:
        mean_ranks: the mean rank of each model over the data sets.
        datasets: the data sets on which all these models have enough runs.
        p_value: Friedman's probability of ranks as uneven as these if all models were alike.
        critical_difference: the distance of mean ranks from which Nemenyi's test calls two models different.
    """

    mean_ranks: Mapping[str, float]
    datasets: tuple[str, ...]
    p_value: float
    critical_difference: float


@cache
def critical_difference(num_models: int, num_datasets: int) -> float:
    """Nemenyi's critical difference of mean ranks at 5 %.

    >>> round(critical_difference(4, 14), 2)  # the example of Demšar
    1.25
    """
    quantile = stats.studentized_range.ppf(0.95, num_models, 10_000) / np.sqrt(2)
    return float(quantile * np.sqrt(num_models * (num_models + 1) / (6 * num_datasets)))


def rank_models(rows: Sequence[Row], least_runs: int = 3) -> Ranks | None:
    """Ranks of the models over the data sets that give the largest complete matrix; None where it is too small.

    Args:
        rows: rows of one table, in which larger scores are better.
        least_runs: a mean of fewer runs does not count.
    """
    scores: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.mean is not None and row.runs >= least_runs:
            name = row.model if row.basis is None else f"{row.model} ({row.basis})"
            scores.setdefault(name, {})[row.dataset] = row.mean
    datasets = _largest_complete(scores)
    models = [name for name, means in scores.items() if means.keys() >= set(datasets)]
    if not datasets or len(models) < _LEAST_MODELS:
        return None
    table = np.array([[scores[name][dataset] for dataset in datasets] for name in models])  # (k, n)
    mean_ranks = stats.rankdata(-table, axis=0).mean(axis=1)
    best_first = np.argsort(mean_ranks, kind="stable")
    return Ranks(
        {models[i]: float(mean_ranks[i]) for i in best_first},
        datasets,
        float(stats.friedmanchisquare(*table).pvalue),
        critical_difference(len(models), len(datasets)),
    )


def _largest_complete(scores: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """The data sets, at least three, with the most pairs of a data set and a model that has all of them."""
    names = list(dict.fromkeys(dataset for means in scores.values() for dataset in means))
    best: tuple[str, ...] = ()
    most = 0
    for size in range(_LEAST_DATASETS, len(names) + 1):
        for group in itertools.combinations(names, size):
            complete = sum(means.keys() >= set(group) for means in scores.values())
            if complete >= _LEAST_MODELS and complete * size >= most:
                best, most = group, complete * size
    return best


_ROW, _LEFT, _WIDTH, _TOP, _BOTTOM = 22, 190, 420, 16, 44


def draw_ranks(ranks: Ranks, title: str) -> str:
    """An SVG: the mean rank of each model with a bar as wide as the critical difference.

    Two models differ where their bars do not overlap.
    """
    count, half = len(ranks.mean_ranks), ranks.critical_difference / 2
    width, height = _LEFT + _WIDTH + 30, _TOP + count * _ROW + _BOTTOM

    def place(rank: float) -> float:
        return _LEFT + _WIDTH * (min(max(rank, 0.5), count + 0.5) - 0.5) / count

    base = _TOP + count * _ROW
    parts = [f"<rect width='{width}' height='{height}' rx='8' fill='#ffffff'/>"]
    for tick in range(1, count + 1, 1 + count // 12):
        x = place(tick)
        parts.append(f"<line x1='{x:.1f}' y1='{_TOP}' x2='{x:.1f}' y2='{base}' stroke='#e3e7ec'/>")
        parts.append(f"<text x='{x:.1f}' y='{base + 16}' text-anchor='middle' fill='#5a636e'>{tick}</text>")
    parts.append(
        f"<text x='{_LEFT + _WIDTH / 2}' y='{base + 34}' text-anchor='middle' fill='#1b1f24'>mean rank "
        f"(1 is best); bars are {ranks.critical_difference:.1f} wide</text>"
    )
    for i, (name, rank) in enumerate(ranks.mean_ranks.items()):
        y = _TOP + (i + 0.5) * _ROW
        colour = "#a84300" if name.startswith(("polyformer", "cascade")) else "#2f5d8a"
        parts.append(f"<text x='{_LEFT - 10}' y='{y + 4}' text-anchor='end' fill='#1b1f24'>{html.escape(name)}</text>")
        parts.append(
            f"<line x1='{place(rank - half):.1f}' y1='{y}' x2='{place(rank + half):.1f}' y2='{y}' stroke='{colour}' "
            f"stroke-width='3' stroke-opacity='0.35'/><circle cx='{place(rank):.1f}' cy='{y}' r='5' fill='{colour}'/>"
        )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' "
        f"role='img' font-family='system-ui, Helvetica, Arial, sans-serif' font-size='12'>"
        f"<title>{html.escape(title)}</title>" + "".join(parts) + "</svg>\n"
    )
