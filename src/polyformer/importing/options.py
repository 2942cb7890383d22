"""What the user can say about an import, and what is said back."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyformer.columns import Column
from polyformer.errors import InvalidParameter, UnknownName
from polyformer.machine import parse_bytes
from polyformer.registry import suggest
from polyformer.settings import setting

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
"""More columns of one role than this share one line."""

_PLURALS = {"feature": "features", "category": "categories", "feature vector": "feature vectors"}


@dataclass(frozen=True)
class ImportOptions:
    """How a source is read. Every field has a default; columns not named are matched by common names.

    Fields declared by ``setting`` are options of ``polyformer import``, and their texts are its help.

    Attributes:
        columns: features to read as another table was read; columns beside them are left alone.
        max_categories: a text column with more distinct values than this is not taken for a category.
        num_nodes: number of nodes of edges without a node table; ids must then lie in 0..num_nodes-1.
        name: name of the data in runs and reports; by default the name of SOURCE.

    Example:
        >>> ImportOptions(id_column="user", features=("age", "country")).protocol
        'uniform'
    """

    edges: Path | None = setting(None, "Edge table or raw pairs. [default: the file with a usual name in SOURCE]")
    nodes: Path | None = setting(None, "Node table. [default: the file with a usual name in SOURCE]")
    source_column: str | None = setting(None, "Column of the edge table: one end of an edge. [default: by name]")
    target_column: str | None = setting(None, "Column of the edge table: the other end. [default: by name]")
    weight_column: str | None = setting(
        None, "Column of the edge table: weight; '' ignores weights. [default: by name]"
    )
    id_column: str | None = setting(None, "Column of the node table: node id. [default: by name]")
    label_column: str | None = setting(
        None,
        "Column of the node table: class or value; '' ignores labels wherever SOURCE has them, and a column named like "
        "labels is no feature. [default: by name]",
    )
    split_column: str | None = setting(
        None,
        "Column of the node table: train, val or test; '' ignores splits wherever SOURCE has them, and a column named "
        "like splits is no feature. [default: by name]",
    )
    features: tuple[str, ...] | None = setting(
        None, "Feature columns, in this order; '' takes none. [default: all other columns]", metavar="A,B,…"
    )
    categories: tuple[str, ...] = setting((), "Columns to encode one-hot, whatever their type.", metavar="A,B,…")
    columns: tuple[Column, ...] | None = None
    missing: str = setting(
        "fill",
        "What happens to missing numbers: fill puts the column's median there and adds a column of zeros and ones that "
        "marks these nodes; refuse ends the import.",
    )
    split_by: str | None = setting(
        None,
        "Column of numbers or dates: the oldest 60 % of the nodes train, the newest 20 % test. This column is no "
        "feature unless --features names it.",
        metavar="COLUMN",
    )
    max_categories: int = 100
    id_type: str = setting("auto", "Type of node ids: auto, integer or string (keeps leading zeros in CSV files).")
    label_kind: str = setting(
        "auto", "What labels are: auto (real numbers are values, all else classes), classes or values (regression)."
    )
    protocol: str = setting(
        "uniform",
        "How splits are drawn if SOURCE has none: uniform, balanced, or none for a graph on which nothing is trained.",
    )
    seed: int = setting(0, "Seed for drawing the splits; split i is drawn with seed + i.")
    num_splits: int = setting(1, "Number of splits to draw.")
    num_nodes: int | None = None
    metric: str = setting(
        "",
        "Metric to select and report by, e.g. balanced_accuracy or mae. [default: accuracy, or r2 for values]",
    )
    name: str = ""
    encoding: str = setting("", "Encoding of CSV files, e.g. latin-1. [default: by byte-order mark, else UTF-8]")
    decimal: str = setting(
        "",
        "Decimal mark in CSV files. [default: recognised where semicolons or tabs separate cells]",
        metavar=".|,",
    )
    memory: int = setting(
        2 * 1024**3, "Use at most this much resident memory. [default: 2GiB]", metavar="SIZE", parse=parse_bytes
    )

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
            from polyformer.metrics import METRICS  # imported late, as it loads numpy, for which --help must not wait

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
