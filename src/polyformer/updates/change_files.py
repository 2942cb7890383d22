"""Which files are tables of changes, and a table with a column ``action`` as one table for each action."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from polyformer.errors import DataNotFound, InvalidData
from polyformer.importing.column_roles import EDGE_ROLES, match_column
from polyformer.importing.tables import Table, open_table

__all__ = ["ACTIONS", "ChangeTable", "find_tables", "split_by_action"]

ACTIONS = {
    "add": ("add", "added", "insert", "new"),
    "change": ("change", "changed", "update", "set"),
    "remove": ("remove", "removed", "delete"),
}
"""What a cell of the column ``action`` may say."""

_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".parquet", ".pq")


@dataclass(frozen=True, eq=False)
class ChangeTable:
    """Rows of one action.

    Attributes:
        what: the action and what it is done to, e.g. ``add_edges``.
        table: the rows.
        name: the user's file that they stand in.
        rows: the row of that file of each row of the table; None where they are the same.
    """

    what: str
    table: Table
    name: str
    rows: np.ndarray | None = None


def find_tables(path: Path) -> list[tuple[Path, str]]:
    """The tables of a change, each with what it is called: ``nodes``, ``add_edges``, …."""
    if not path.exists():
        raise DataNotFound(f"There is nothing at '{path}'. Give a folder of tables, or a table, of changes.")
    files = []
    for place in sorted(path.iterdir()) if path.is_dir() else [path]:
        if not place.name.lower().endswith(_ENDINGS):
            continue
        stem = place.name.lower().split(".")[0]
        kind = next((kind for kind in ("nodes", "edges") if stem.endswith(kind)), None)
        if kind is None and path.is_dir():
            raise InvalidData(
                f"'{place.name}' of '{path}' is no table of changes by its name. Call it nodes or edges, or "
                f"add_nodes, change_nodes, remove_nodes, add_edges, change_edges or remove_edges."
            )
        if kind is None:
            names = open_table(place).names
            kind = "edges" if match_column("source", EDGE_ROLES["source"], names, None, place.name) else "nodes"
        action = next((name for name, words in ACTIONS.items() if stem.split("_")[0] in words), "")
        files.append((place, f"{action}_{kind}" if action else kind))
    if not files:
        raise DataNotFound(f"'{path}' holds no table of changes. Put nodes.csv or edges.csv there.")
    return files


def split_by_action(file: Path, what: str, folder: Path) -> list[ChangeTable]:
    """A table for each action: as it is where its name tells the action, else by its column ``action``."""
    table = open_table(file)
    if "_" in what:
        return [ChangeTable(what, table, file.name)]
    column = match_column("action", ("action",), table.names, None, table.name)
    if column is None:
        raise InvalidData(
            f"'{file.name}' has no column 'action' that says add, change or remove. Add one, or call the table "
            f"add_{what}, change_{what} or remove_{what}."
        )
    text = {name: pa.string() for name in table.names} if file.name.lower().endswith(_ENDINGS[:4]) else {}
    batches = list(table.batches(table.names, text))
    if not batches:  # a head without rows
        return []
    whole = pa.Table.from_batches(batches)
    said = pc.utf8_lower(pc.utf8_trim_whitespace(whole.column(column).cast(pa.string())))
    strange = pc.invert(pc.fill_null(pc.is_in(said, pa.array([w for words in ACTIONS.values() for w in words])), False))
    if pc.any(strange).as_py():
        row = pc.index(strange, True).as_py()
        raise InvalidData(
            f"The action in row {row + 1} of '{file.name}' must be add, change or remove. Got '{said[row]}'."
        )
    parts = []
    for action, words in ACTIONS.items():
        numbers = np.flatnonzero(pc.is_in(said, pa.array(words)).to_numpy())
        if len(numbers):
            rows = _written(whole.take(numbers).drop_columns([column]), folder / f"{action}_{what}", bool(text))
            parts.append(ChangeTable(f"{action}_{what}", rows, file.name, numbers))
    return parts


def _written(rows: pa.Table, place: Path, text: bool) -> Table:
    """Some rows as a table of their own: columns that no row fills are left out."""
    filled = [name for name in rows.column_names if rows.column(name).null_count < rows.num_rows]
    if text:
        path = place.with_suffix(".csv")
        pacsv.write_csv(rows.select(filled), path)
    else:
        import pyarrow.parquet as pq

        path = place.with_suffix(".parquet")
        pq.write_table(rows.select(filled), path)
    return open_table(path)
