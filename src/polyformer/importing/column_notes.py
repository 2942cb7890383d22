"""Sentences about the columns of a table: a few for each topic, however many columns there are."""

from __future__ import annotations

__all__ = ["ColumnNotes"]

_SHOWN = 3
"""Number of columns of a topic that have a sentence each; one sentence names the others."""


class ColumnNotes:
    """Collects a sentence for each column and topic.

    >>> notes = ColumnNotes()
    >>> for i in range(200):
    ...     notes.add("empty", f"g{i}", f"'g{i}' is left out: the column is empty.")
    >>> notes.lines()[2:]
    ["'g2' is left out: the column is empty.", 'Likewise 197 more columns: g3, g4, g5, ….']
    """

    def __init__(self) -> None:
        self._topics: dict[str, list[tuple[str, str]]] = {}

    def add(self, topic: str, column: str, sentence: str) -> None:
        """Add a sentence; the sentences of a topic say the same about different columns."""
        self._topics.setdefault(topic, []).append((column, sentence))

    def lines(self) -> list[str]:
        """All sentences in the order of their topics, or a few of them and the names of the other columns."""
        lines = []
        for entries in self._topics.values():
            others = [column for column, _ in entries[_SHOWN:]]
            if len(others) == 1:
                others = []
            lines += [sentence for _, sentence in (entries[:_SHOWN] if others else entries)]
            if others:
                more = ", …" if len(others) > _SHOWN else ""
                lines.append(f"Likewise {len(others):,} more columns: {', '.join(others[:_SHOWN])}{more}.")
        return lines
