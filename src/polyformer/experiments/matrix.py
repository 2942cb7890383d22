"""One table as a matrix of models and data sets, with the published value in small type below each of ours."""

from __future__ import annotations

import html
from collections.abc import Sequence

from polyformer.experiments.summary import Row, format_score

__all__ = ["MARKS", "standing", "to_matrix"]

MARKS = {"above": "▲", "inside": "●", "below": "▼", "alone": ""}
"""The sign of each standing, so that colour is not the only way to see it."""


def standing(row: Row) -> str:
    """Where our mean stands: ``above`` (better than) the published interval, ``inside``, ``below``, or ``alone``.

    A published score without an interval counts as its rounding, an error as half a percent of it. An error is better
    where it is smaller. ``alone`` means that nothing was published.
    """
    if row.mean is None or row.published is None:
        return "alone"
    width = row.published_interval
    if width is None:
        width = _ERROR_SHARE * row.published if row.metric in _SMALLER_IS_BETTER else _ROUNDING
    difference = row.mean - row.published
    if abs(difference) <= width:
        return "inside"
    return "above" if (difference > 0) != (row.metric in _SMALLER_IS_BETTER) else "below"


def to_matrix(rows: Sequence[Row]) -> str:
    """An HTML table: a row a model, a column a data set; one table for each metric of the rows that have runs.

    A cell has our mean with its 95 % interval and the number of runs, and below it what was published. The class of a
    cell is its :func:`standing`, which the style of the site colours.
    """
    metrics = list(dict.fromkeys(row.metric for row in rows))
    tables = [_table([row for row in rows if row.metric == metric], metric) for metric in _largest_first(metrics)]
    return "\n\n".join(tables)


_ROUNDING, _ERROR_SHARE = 0.00015, 0.005
_SMALLER_IS_BETTER = ("squared_error",)


def _largest_first(metrics: list[str]) -> list[str]:
    """Scores before errors."""
    return sorted(metrics, key=lambda metric: metric in _SMALLER_IS_BETTER)


def _table(rows: Sequence[Row], metric: str) -> str:
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    models = list(dict.fromkeys((row.model, row.basis) for row in rows))
    cells = {(row.model, row.basis, row.dataset): row for row in rows}
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in datasets)
    lines = ["<table class='matrix'>", f"<thead><tr><th scope='col'>{html.escape(metric)}</th>{head}</tr></thead>"]
    for model, basis in models:
        name = html.escape(model if basis is None else f"{model} ({basis})")
        values = "".join(_cell(cells.get((model, basis, dataset))) for dataset in datasets)
        lines.append(f"<tr><th scope='row'>{name}</th>{values}</tr>")
    return "\n".join([*lines, "</table>"])


def _cell(row: Row | None) -> str:
    if row is None or row.mean is None:
        return "<td>–</td>"
    place = standing(row)
    ours = f"{format_score(row, row.mean, row.interval)}{MARKS[place] and ' ' + MARKS[place]}"
    runs = f"{row.runs}{'†' if row.outdated else ''} {'run' if row.runs == 1 else 'runs'}"
    small = runs if row.published is None else f"{runs}; {format_score(row, row.published, row.published_interval)}"
    return f"<td class='{place}'>{ours}<br><small>{small}</small></td>"
