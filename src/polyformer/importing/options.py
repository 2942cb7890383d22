"""What the user can say about an import, and what is said back."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyformer.columns import Column
from polyformer.errors import InvalidParameter, UnknownName
from polyformer.metrics import METRICS
from polyformer.registry import suggest

__all__ = [
    "BY_TIME",
    "ID_TYPES",
    "LABEL_KINDS",
    "MISSING",
    "PROTOCOLS",
    "ColumnMatch",
    "ImportOptions",
    "ImportSummary",
    "match_lines",
]

PROTOCOLS = ("uniform", "balanced", "none")
BY_TIME = "by time"
"""The protocol of splits from a column of times."""
ID_TYPES = ("auto", "integer", "string")
LABEL_KINDS = ("auto", "classes", "values")
MISSING = ("fill", "refuse")

_MOST_LINES = 10
"""More columns of one role than this are told in one line."""

_PLURALS = {"feature": "features", "category": "categories", "feature vector": "feature vectors"}


@dataclass(frozen=True)
class ImportOptions:
    """How a source is read. Every field has a default; columns not named are matched by common names.

    Attributes:
        edges: edge table or raw pairs, where SOURCE is not a folder that holds it.
        nodes: node table, likewise.
        source_column, target_column, weight_column: columns of the edge table; ``weight_column=""`` ignores weights.
        id_column, label_column, split_column: columns of the node table; ``""`` ignores labels or splits, wherever
            the source has them, and leaves columns of their common names out of the features.
        features: feature columns in this order; None takes every other column, ``()`` none.
        categories: columns to encode one-hot whatever their type.
        columns: read these features, as another table was read; columns beside them are left alone.
        missing: ``fill`` puts the median where a number is missing, and marks those nodes in a column of zeros and
            ones; ``refuse`` refuses missing numbers.
        split_by: column of numbers or dates: oldest nodes train, newest test; it is no feature unless it is named.
        max_categories: a text column with more distinct values than this is not taken for a category.
        id_type: ``auto``, ``integer`` or ``string`` (keeps leading zeros of ids in CSV files).
        label_kind: ``auto`` (real numbers are values, all else classes), ``classes`` or ``values``.
        protocol: ``uniform`` or ``balanced``, how splits are drawn where the source has none; ``none`` draws none, for
            a graph on which nothing is trained.
        seed, num_splits: split i is drawn with ``seed + i``.
        num_nodes: for edges without a node table; ids must then lie in 0..num_nodes-1.
        metric: a name in ``METRICS``; by default accuracy, or r2 for values.
        name: what the data is called in runs and reports; by default the name of SOURCE.
        encoding: encoding of CSV files, e.g. ``latin-1``; by default what a byte-order mark says, else UTF-8.
        decimal: ``.`` or ``,``, the decimal mark in CSV files; by default recognised where semicolons or tabs separate
            cells.
        memory: bound in bytes on the resident memory of an import.

    Example:
        >>> ImportOptions(id_column="user", features=("age", "country")).protocol
        'uniform'
    """

    edges: Path | None = None
    nodes: Path | None = None
    source_column: str | None = None
    target_column: str | None = None
    weight_column: str | None = None
    id_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    features: tuple[str, ...] | None = None
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] | None = None
    missing: str = "fill"
    split_by: str | None = None
    max_categories: int = 100
    id_type: str = "auto"
    label_kind: str = "auto"
    protocol: str = "uniform"
    seed: int = 0
    num_splits: int = 1
    num_nodes: int | None = None
    metric: str = ""
    name: str = ""
    encoding: str = ""
    decimal: str = ""
    memory: int = 2 * 1024**3

    def __post_init__(self) -> None:
        self._check_text_options()
        for name, value, choices in (
            ("protocol", self.protocol, PROTOCOLS),
            ("id_type", self.id_type, ID_TYPES),
            ("label_kind", self.label_kind, LABEL_KINDS),
            ("missing", self.missing, MISSING),
        ):
            if value not in choices:
                raise UnknownName(f"Unknown {name} '{value}'. {suggest(value, choices)}")
        if self.metric:
            METRICS[self.metric]
        for name, number, least in (
            ("num_splits", self.num_splits, 1),
            ("max_categories", self.max_categories, 2),
            ("seed", self.seed, 0),
            ("num_nodes", self.num_nodes, 1),
        ):
            if number is not None and number < least:
                raise InvalidParameter(f"'{name}' must be {least} or more. Got {number}.")

    def _check_text_options(self) -> None:
        if self.decimal not in ("", ".", ","):
            raise InvalidParameter(f"'decimal' must be . or , and nothing else. Got '{self.decimal}'.")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            raise UnknownName(f"Unknown encoding '{self.encoding}'. Try utf-8, latin-1, cp1252 or utf-16.") from None


@dataclass(frozen=True)
class ColumnMatch:
    """That ``column`` of ``table`` was taken as ``role``; printed back so that a wrong guess is seen.

    >>> print(ColumnMatch("edges.csv", "source", "src"))
    edges.csv: 'src' → source
    """

    table: str
    role: str
    column: str

    def __str__(self) -> str:
        return f"{self.table}: '{self.column}' → {self.role}"


def match_lines(matches: Sequence[ColumnMatch]) -> list[str]:
    """A line for each match; columns of a table that play the same role share one where there are many of them.

    >>> features = [ColumnMatch("nodes.csv", "feature", f"g{i}") for i in range(217)]
    >>> match_lines([ColumnMatch("nodes.csv", "id", "node"), *features])
    ["nodes.csv: 'node' → id", 'nodes.csv: 217 columns → features (g0, g1, g2, …)']
    """
    groups: dict[tuple[str, str], list[ColumnMatch]] = {}
    for match in matches:
        groups.setdefault((match.table, _kind(match.role)), []).append(match)
    lines: list[str] = []
    for (table, kind), members in groups.items():
        if len(members) <= _MOST_LINES:
            lines += map(str, members)
            continue
        shown = ", ".join(match.column for match in members[:3])
        lines.append(f"{table}: {len(members):,} columns → {_PLURALS.get(kind, kind)} ({shown}, …)")
    return lines


def _kind(role: str) -> str:
    """A role without what differs from column to column, such as the categories.

    >>> _kind("category of 3 (a, b, c)")
    'category'
    """
    return re.split(r" of |[,;(]", role)[0].strip()


@dataclass(frozen=True)
class ImportSummary:
    """What was read, matched and written.

    Attributes:
        matched: which columns or keys were taken as what, in reading order.
        notes: whatever the user should know: what was left out, drawn or assumed.
        num_edges: undirected edges written, each counted once.
        edges_read: rows of the edge list, with repeats and self-loops.
        isolated_nodes: nodes without an edge.
        seconds: wall time from opening the source to the renamed directory.
    """

    destination: Path
    format: str
    matched: tuple[ColumnMatch, ...]
    notes: tuple[str, ...]
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    weighted: bool
    metric: str
    protocol: str
    num_splits: int
    edges_read: int
    self_loops: int
    isolated_nodes: int
    seconds: float

    @property
    def edges_per_second(self) -> float:
        """Rows of the edge list per second of the whole import."""
        return self.edges_read / max(self.seconds, 1e-9)

    def lines(self) -> list[str]:
        """The summary as sentences for a terminal."""
        counted = (
            f"{self.num_nodes:,} nodes ({self.isolated_nodes:,} without an edge), {self.num_edges:,} "
            f"{'weighted ' if self.weighted else ''}edges, {self.num_features:,} features"
        )
        rows = f"{self.edges_read:,} edge rows, {self.self_loops:,} of them self-loops, in {self.seconds:.1f} s"
        return [
            *match_lines(self.matched),
            *self.notes,
            counted,
            f"{rows} ({self.edges_per_second / 1e6:.2f} million a second)",
            f"written to {self.destination}",
        ]
