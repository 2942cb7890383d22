from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyformer.cli.display import Display
from polyformer.cli.options import DataRoot

if TYPE_CHECKING:
    from polyformer.datasets import Dataset

__all__ = ["datasets"]


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Show all facts about this data set, and how to get it."),
    ] = None,
    data_root: DataRoot = None,
    json_only: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """List the data sets: size, metric, split protocols (the paper's first), and whether each is on this machine.

    Files are looked for in --data-root, then in the folder that POLYFORMER_DATA names, then in the user's cache.

    Examples:

    - `polyformer datasets`

    - `polyformer datasets pokec` — citation of pokec, and which file to put where

    - `polyformer train minesweeper --data-root /data/graphs`
    """
    from polyformer.datasets import DATASETS

    display = Display(json_only)
    if name is not None:
        row = _describe(name, DATASETS[name], data_root)
        for key, value in row.items():
            display.say(f"{key:<10} {_cell(value, 0)}")
        display.result(row)
        return
    rows = [_describe(entry, DATASETS[entry], data_root) for entry in DATASETS]
    titles = ("name", "nodes", "edges", "features", "classes", "metric", "protocols", "status")
    widths = (-20, 12, 15, 10, 9, -10, -26, 0)
    display.say("  ".join(_cell(title, width) for title, width in zip(titles, widths, strict=True)))
    for row in rows:
        row = row | {"status": row["status"].split(". ")[0]}
        display.say("  ".join(_cell(row[title], width) for title, width in zip(titles, widths, strict=True)))
    display.result(rows)


def _describe(name: str, dataset: Dataset, root: Path | None) -> dict[str, Any]:
    counts = dataset.counts
    sizes = ("nodes", "edges", "features")
    return {
        "name": name,
        **{size: None if counts is None else getattr(counts, size) for size in sizes},
        "classes": None if counts is None else counts.classes or None,
        "metric": dataset.metric or None,
        "protocols": list(dataset.protocols),
        "status": dataset.status(root),
        "citation": dataset.citation,
    }


def _cell(value: Any, width: int) -> str:
    """A table cell: numbers to the right, text to the left (a negative width)."""
    text = "-" if value is None else f"{value:,}" if isinstance(value, int) else value
    text = ", ".join(text) if isinstance(text, list) else str(text)
    return text.ljust(-width) if width <= 0 else text.rjust(width)
