"""The journal of a graph directory: one line for each change, and beside it which rows the change touched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.errors import DataNotFound, FileCorrupt
from polyformer.files import RESTORE, array_digest, json_line, open_in_place, read_json_lines, read_npz, write_npz
from polyformer.files.data_schemas import GRAPH_CHANGE
from polyformer.graph_changes import GraphChange
from polyformer.system import discard

__all__ = ["JOURNAL", "KEPT_CHANGES", "Journal"]

JOURNAL = "journal.jsonl"

KEPT_CHANGES = 100
"""The touched rows are kept for this number of changes, the last ones; older tokens are made anew."""


@dataclass(frozen=True)
class Journal:
    """The first lines of a journal, as many as the manifest counts versions: a line behind them was never finished.

    Attributes:
        folder: the graph directory.
        version: how many changes the graph has seen.
    """

    folder: Path
    version: int

    def entries(self) -> list[dict[str, Any]]:
        """What changed and when, oldest first."""
        if self.version == 0:
            return []
        return list(read_json_lines(self.folder / JOURNAL, GRAPH_CHANGE))[: self.version]

    def changes(self, num_nodes: int) -> tuple[GraphChange, ...]:
        """Which rows the last changes touched, oldest first; changes before the last renumbering of nodes are left out.

        Args:
            num_nodes: N of the graph as it is now.
        """
        changes: list[GraphChange] = []
        for entry in reversed(self.entries()[-KEPT_CHANGES:]):
            if entry["compacted"]:
                break
            try:
                arrays = read_npz(self.folder / _name(entry["version"]), ["ends", "degrees", "rows"])
            except DataNotFound:  # a later update has removed it
                break
            about = (entry["before"], entry["structure_before"], entry["nodes_before"])
            change = GraphChange(*about, arrays["ends"], arrays["degrees"], arrays["rows"])
            self._check(change, entry, num_nodes)
            changes.append(change)
        return tuple(reversed(changes))

    def _check(self, change: GraphChange, entry: dict[str, Any], num_nodes: int) -> None:
        """Refuse touched rows that are not those that were written; earlier versions did not hash them."""
        path, ids = self.folder / _name(entry["version"]), (change.ends, change.rows)
        plain = all(part.ndim == 1 and part.dtype == np.int64 for part in ids)
        if not plain or change.degrees.shape != change.ends.shape or change.degrees.dtype != np.float64:
            raise FileCorrupt(f"'{path}' does not hold the rows that a change touched. {RESTORE}")
        if any(len(part) and (part[0] < 0 or part[-1] >= num_nodes or np.any(np.diff(part) <= 0)) for part in ids):
            raise FileCorrupt(f"'{path}' must hold rising ids in 0..{num_nodes - 1}. {RESTORE}")
        if "touched" in entry and _digest(change) != entry["touched"]:
            raise FileCorrupt(f"'{path}' has changed since it was written: its hash differs. {RESTORE}")

    def append(self, entry: dict[str, Any], change: GraphChange | None) -> None:
        """Write down the next change, on the disk; it counts once the manifest names its version."""
        if change is not None:
            arrays = {"ends": change.ends, "degrees": change.degrees, "rows": change.rows}
            write_npz(self.folder / _name(entry["version"]), arrays)
            entry = entry | {"touched": _digest(change)}
        path = self.folder / JOURNAL
        kept = [json_line(line, GRAPH_CHANGE) + "\n" for line in self.entries()] if path.exists() else []
        line = json_line(entry, GRAPH_CHANGE) + "\n"
        with open_in_place(path) as file:
            file.truncate(sum(len(text.encode()) for text in kept))
            file.seek(0, os.SEEK_END)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def remove_old(self) -> None:
        """Remove the rows of changes that are not kept any more."""
        for path in self.folder.glob("change-*.npz"):
            number = path.stem.partition("-")[2]
            if not number.isdigit() or not self.version - KEPT_CHANGES < int(number) <= self.version:
                discard(path)


def _digest(change: GraphChange) -> str:
    """A hash of the rows that a change touched."""
    return array_digest(change.ends, change.degrees, change.rows)


def _name(version: int) -> str:
    return f"change-{version}.npz"
