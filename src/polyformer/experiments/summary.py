"""Compute the numbers of a table from records: mean, interval, deviation, published value and difference."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from scipy import stats

from polyformer.bootstrap import bootstrap_means, middle_95
from polyformer.datasets import DATASETS, data_name
from polyformer.experiments.plan import Job, Series
from polyformer.experiments.published import PublishedScore, published_scores
from polyformer.machine import format_bytes

__all__ = [
    "Row",
    "bootstrap_interval",
    "format_score",
    "load_remarks",
    "mean_interval",
    "older_settings",
    "summarise",
    "to_csv",
    "to_markdown",
]

_PERCENT = ("accuracy", "roc_auc")
_ENOUGH_FOR_BOOTSTRAP = 5

_COLUMNS = (
    "model",
    "data set",
    "metric",
    "ours (95 %)",
    "std",
    "runs",
    "published (95 %)",
    "difference",
    "CPU s / run",
    "memory",
    "note",
)


@dataclass(frozen=True)
class Row:
    """One number of a table; scores are fractions.

    Attributes:
        interval: half the width of the 95 % interval of the mean; None for a single run.
        deviation: the standard deviation of the runs; None for a single run.
        difference: our value minus the published value.
        seconds: mean processor time of a run.
        memory: the largest peak of all runs, in bytes.
        outdated: number of runs made with settings that have changed since; the note names the settings.
        note: who chose the settings, and remarks of the paper.
    """

    model: str
    basis: str | None
    dataset: str
    metric: str
    mean: float | None
    interval: float | None
    deviation: float | None
    runs: int
    published: float | None
    published_interval: float | None
    difference: float | None
    seconds: float | None
    memory: int | None
    outdated: int
    note: str


def bootstrap_interval(values: Sequence[float], draws: int = 1000) -> float:
    """The larger half of the 95 % interval of ``draws`` bootstrap means: the ± of the paper.

    >>> bootstrap_interval([0.8, 0.8, 0.8])
    0.0
    """
    sample = np.asarray(values, np.float64)
    low, high = middle_95(bootstrap_means(sample, draws))
    return float(round(max(sample.mean() - low, high - sample.mean()), 12))


def mean_interval(values: Sequence[float]) -> float:
    """The ± of a mean: by the bootstrap as in the paper from five runs on, by Student's t for fewer.

    For normal scores, the bootstrap interval of three runs contains the mean in 77 % of cases, that of two in 52 %.

    >>> round(mean_interval([0.8, 0.82]), 3)
    0.127
    """
    if len(values) >= _ENOUGH_FOR_BOOTSTRAP:
        return bootstrap_interval(values)
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)


def summarise(
    series: Iterable[Series], records: Iterable[tuple[Job, dict[str, Any]]], table: str | None = None
) -> list[Row]:
    """One row for each series and metric, also for series without a record.

    Args:
        table: name of the published table to compare with.
    """
    finished: dict[tuple[str, ...], list[tuple[Job, dict[str, Any]]]] = {}
    for job, record in records:
        if record["result"]["test"] is not None:
            finished.setdefault(job.series.key, []).append((job, record))
    return [row for entry in series for row in _rows(entry, finished.get(entry.key, []), table)]


def older_settings(job: Job, record: dict[str, Any]) -> dict[str, Any]:
    """The settings of a record that differ from those of the same run today, as a default or a preset has changed."""
    today, then = job.request.resolve_settings(), record["config"].get("settings", {})
    return {name: value for name, value in then.items() if name in today and today[name] != value}


@cache
def load_remarks() -> dict[tuple[str, ...], str]:
    """Remarks on single rows, such as why a row differs from the paper, by :attr:`Series.key`.

    ``remarks.csv`` has a line for each remark: plan, model, basis, data set, remark.
    """
    text = files("polyformer.experiments").joinpath("remarks.csv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(row["plan"], row["model"], row["basis"], row["dataset"]): row["remark"] for row in rows}


def _note(series: Series, records: Sequence[dict[str, Any]], older: Sequence[dict[str, Any]]) -> str:
    """The note of a series, with the data that stands for other data and the settings that have changed."""
    parts = [series.note, *filter(None, [load_remarks().get(series.key)])]
    if series.stands_for is not None:
        parts.append(f"{series.dataset} stands in for {series.stands_for}")
    requested_data = data_name(series.source)
    if requested_data in DATASETS:
        names = Counter(record["config"]["task"]["name"] for record in records)
        parts += [
            f"{count} of {len(records)} runs on {name}" for name, count in names.items() if name != requested_data
        ]
    if older:
        values = {f"{name}={value}" for settings in older for name, value in settings.items()}
        parts.append(f"{len(older)} of {len(records)} runs with older settings: {', '.join(sorted(values))}")
    return "; ".join(parts)


def _rows(series: Series, finished: list[tuple[Job, dict[str, Any]]], table: str | None) -> list[Row]:
    records = [record for _, record in finished]
    older = [settings for job, record in finished if (settings := older_settings(job, record))]
    results = [record["result"] for record in records]
    series = replace(series, note=_note(series, records, older))
    metrics = {name for result in results for name in (*result, result["metric"])}
    published = [
        entry
        for entry in (published_scores(series.model, series.dataset, table=table) if table else [])
        if entry.basis == series.basis and (not results or entry.metric in metrics)
    ]
    if not published:
        return [_row(series, results, results[0]["metric"] if results else "", None, len(older))]
    return [_row(series, results, entry.metric, entry, len(older)) for entry in published]


def _row(
    series: Series, results: list[dict[str, Any]], metric: str, published: PublishedScore | None, outdated: int
) -> Row:
    values = [_score(result, metric) for result in results]
    mean = float(np.mean(values)) if values else None
    score = None if published is None else published.score
    return Row(
        series.model,
        series.basis,
        series.dataset,
        metric,
        mean,
        mean_interval(values) if len(values) > 1 else None,
        float(np.std(values, ddof=1)) if len(values) > 1 else None,
        len(values),
        score,
        None if published is None else published.interval,
        None if mean is None or score is None else mean - score,
        float(np.mean([result.get("cpu_seconds", result["seconds"]) for result in results])) if results else None,
        max(result["peak_memory_bytes"] for result in results) if results else None,
        outdated,
        "; ".join(filter(None, [series.note, f"paper: {published.note}" if published and published.note else ""])),
    )


def _score(result: dict[str, Any], metric: str) -> float:
    return float(result["test"] if metric == result["metric"] else result[metric])


def to_csv(tables: Iterable[tuple[str, Iterable[Row]]]) -> str:
    """All rows as CSV; the columns are the name of the table and the fields of :class:`Row`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [entry.name for entry in fields(Row)]
    writer.writerow(["table", *names])
    for table, rows in tables:
        writer.writerows([table, *(getattr(row, name) for name in names)] for row in rows)
    return text.getvalue()


def to_markdown(rows: Sequence[Row]) -> str:
    """A Markdown table for people: accuracy and ROC-AUC in percent, notes below the table."""
    notes = list(dict.fromkeys(row.note for row in rows if row.runs))
    lines = [
        f"| {' | '.join(_COLUMNS)} |",
        f"|{'---|' * len(_COLUMNS)}",
    ]
    for row in rows:
        scale, digits = _scale_and_digits(row.metric)
        name = row.model if row.basis is None else f"{row.model} ({row.basis})"
        cells = [
            name,
            row.dataset,
            row.metric,
            format_score(row, row.mean, row.interval),
            _number(row.deviation, scale, digits),
            f"{row.runs}{'†' if row.outdated else ''}",
            format_score(row, row.published, row.published_interval),
            _number(row.difference, scale, digits, "+"),
            _number(row.seconds, 1, 0),
            "–" if row.memory is None else format_bytes(row.memory),
            str(notes.index(row.note) + 1) if row.runs else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{i}. {note}" for i, note in enumerate(notes, 1))]).rstrip() + "\n"


def format_score(row: Row, value: float | None, interval: float | None) -> str:
    """A score of a row with its interval, accuracy and ROC-AUC in percent; a dash where there is none."""
    return _with_interval(value, interval, *_scale_and_digits(row.metric))


def _scale_and_digits(metric: str) -> tuple[int, int]:
    return (100, 2) if metric in _PERCENT else (1, 4)


def _number(value: float | None, scale: int, digits: int, sign: str = "") -> str:
    return "–" if value is None else f"{value * scale:{sign}.{digits}f}"


def _with_interval(value: float | None, interval: float | None, scale: int, digits: int) -> str:
    text = _number(value, scale, digits)
    return text if interval is None else f"{text} ± {_number(interval, scale, digits)}"
