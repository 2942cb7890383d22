"""The scores that the paper prints, as data: every model and data set of its five tables of results.

A table is called ``synthetic``, ``polyattn``, ``node-classification``, ``large-scale`` or ``selfattn``. Models,
bases and data sets have the names that they have here; the synthetic targets are named by their two filters.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["PublishedScore", "published_scores"]

_PERCENT = ("accuracy", "roc_auc")


@dataclass(frozen=True)
class PublishedScore:
    """One entry of a table.

    Attributes:
        basis: name of the basis; None if the table names none.
        metric: name of the metric. The paper says accuracy throughout; on the binary data sets the number is ROC-AUC.
        score: a fraction for accuracy and ROC-AUC; None if the paper has no number.
        interval: half the width of the 95 % confidence interval; None if the paper does not print it.
        note: why there is no number, or under which restriction it was obtained.
    """

    table: str
    model: str
    basis: str | None
    dataset: str
    metric: str
    score: float | None
    interval: float | None
    note: str


def published_scores(
    model: str | None = None, dataset: str | None = None, basis: str | None = None, table: str | None = None
) -> list[PublishedScore]:
    """The entries of a model, data set, basis or table; by default all entries.

    >>> [entry] = published_scores("gcn", "citeseer")
    >>> entry.table, entry.metric, entry.score, entry.interval
    ('node-classification', 'accuracy', 0.8016, 0.0109)
    """
    filters = {"model": model, "dataset": dataset, "basis": basis, "table": table}
    given_filters = {name: value for name, value in filters.items() if value is not None}
    return [
        entry for entry in _entries() if all(getattr(entry, name) == value for name, value in given_filters.items())
    ]


@cache
def _entries() -> tuple[PublishedScore, ...]:
    text = files("polyformer.experiments.published").joinpath("scores.csv").read_text(encoding="utf-8")
    return tuple(_entry(row) for row in csv.DictReader(text.splitlines()))


def _entry(row: dict[str, str]) -> PublishedScore:
    def number(text: str) -> float | None:
        if not text:
            return None
        return round(float(text) / 100, 6) if row["metric"] in _PERCENT else float(text)

    return PublishedScore(
        row["table"],
        row["model"],
        row["basis"] or None,
        row["dataset"],
        row["metric"],
        number(row["score"]),
        number(row["interval"]),
        row["note"],
    )
