"""The schema of every JSON that stands beside a graph or tokens, and of the few that others write. One line a field.

Fields that earlier versions did not write are optional, so that their directories stay readable.
"""

from __future__ import annotations

from polyformer.files.schema import Anything, Either, Flag, Kind, ListOf, Number, Object, Schema, TableOf, Text, Whole
from polyformer.limits import MOST_NODES

__all__ = [
    "COLUMNS",
    "COUNT",
    "GRAPH_CHANGE",
    "GRAPH_MANIFEST",
    "NODES",
    "SAINT_CLASSES",
    "SAINT_ROLES",
    "SCALING",
    "TOKEN_MANIFEST",
    "TOKEN_RECORD",
    "UNFINISHED_PREDICTIONS",
    "UNFINISHED_TOKENS",
]

COUNT = Whole()
NODES = Whole(0, MOST_NODES)


SEALS = TableOf(Object({"bytes": COUNT, "chunks": Text()}))
"""Size and hashes of each file, see :mod:`polyformer.files.seals`."""


class _Scalar(Kind):
    """A text, a number or a truth value: one category of a column."""

    def check(self, value: object, name: str) -> None:
        if not isinstance(value, str | int | float | bool):
            self._refuse(value, name, "a text, a number or a truth value")


_COLUMN = Object(
    {"name": Text(), "width": COUNT, "categories": ListOf(_Scalar()) | None},
    {"kind": Text(), "median": Number() | None, "indicator": Flag()},
)
COLUMNS = ListOf(_COLUMN) | None

_SCALED_COLUMNS = Object(
    {
        "start": COUNT,
        "stop": COUNT,
        "centre": Number(),
        "spread": Number() | None,
        "mean": Number(),
        "deviation": Number(),
    },
    closed=True,
)
SCALING = Object({"num_columns": COUNT, "parts": ListOf(_SCALED_COLUMNS)}) | None

_TASK_OF_GRAPH = Object(
    {
        "name": Text(),
        "metric": Text(),
        "protocol": Text(),
        "num_splits": Whole(0, 1 << 20),
        "class_names": ListOf(Text()) | None,
        "ids": Flag(),
    },
    {"fit": Flag(), "columns": COLUMNS, "preprocessing": ListOf(Text())},
)

GRAPH_MANIFEST = Schema(
    "a graph directory",
    Object(
        {
            "num_nodes": NODES,
            "num_entries": COUNT,
            "num_features": COUNT,
            "weighted": Flag(),
            "features": Text(("dense", "sparse")) | None,
            "structure": Text(),
            "fingerprint": Text(),
        },
        {
            "num_edges": COUNT,
            "samples": TableOf(Text()),
            "files": SEALS,
            "task": _TASK_OF_GRAPH | None,
            "version": COUNT,
            "names": TableOf(Text()),
            "removed": Flag(),
        },
    ),
    {"kind": "graph", "format": 1},
    checksum=True,
)

GRAPH_CHANGE = Schema(
    "a journal of changes",
    Object(
        {
            "version": COUNT,
            "time": Text(),
            "source": Text(),
            "hash": Text(),
            "compacted": Flag(),
            "before": Text(),
            "structure_before": Text(),
            "nodes_before": NODES,
            "after": Text(),
            "counts": TableOf(COUNT),
        },
        {"touched": Text()},
    ),
    checksum=True,
)
"""One line of the journal of a graph directory; see :mod:`polyformer.graph_journal`."""

_RECURRENCE = Object({"norm": ListOf(Number()), "gamma": ListOf(ListOf(Number())), "beta": ListOf(ListOf(Number()))})

_UPDATED_TOKENS: dict[str, Kind] = {
    "base": Text(),
    "base_rows": NODES,
    "log": Text(),
    "structure": Text(),
    "version": COUNT,
    "error_bounds": ListOf(Number()),
    "rms": ListOf(Number()),
    "updated": Text(),
}
"""What an update of tokens adds to their manifest; see :mod:`polyformer.stores.layers`."""

_TOKENS: dict[str, Kind] = {
    "order": Whole(0, 1 << 20),
    "num_rows": NODES,
    "num_features": COUNT,
    "dtype": Text(("float32", "float16")),
    "stored": Text(),
    "view": Either((Text(), Object({"name": Text(), "mixing": ListOf(ListOf(Number()))}))),
    "subset": Flag(),
    "operator": Object({"self_loops": Flag()}, {"structure": Text()}),
}
_TOKENS_LATER: dict[str, Kind] = {
    "graph": Text(),
    "nodes": Text() | None,
    "scaling": SCALING,
    "complete": Flag(),
    "samples": TableOf(Text()),
    "files": SEALS,
    **_UPDATED_TOKENS,
}

TOKEN_MANIFEST = Schema(
    "a token directory", Object(_TOKENS, _TOKENS_LATER), {"kind": "tokens", "format": 1}, checksum=True
)

TOKEN_RECORD = Schema(
    "a log of changed tokens",
    Object(
        {
            "about": Object({"graph": Text(), "structure": Text(), "num_rows": NODES}, _UPDATED_TOKENS),
            "rows": ListOf(COUNT),
            "left_rows": ListOf(COUNT),
            "payload_hash": COUNT,
        }
    ),
)
"""The header of one record of the log; see :mod:`polyformer.stores.change_log`."""

UNFINISHED_TOKENS = Schema(
    "a directory of unfinished tokens",
    Object(
        {
            "job": Object(_TOKENS, _TOKENS_LATER),
            "blocks": ListOf(
                Object({"start": COUNT, "stop": COUNT, "file": Text(), "digest": Text()}, {"recurrence": _RECURRENCE})
            ),
        }
    ),
    checksum=True,
)

UNFINISHED_PREDICTIONS = Schema(
    "a directory of unfinished predictions",
    Object(
        {"model": ListOf(Text() | None), "graph": Text(), "nodes": Text() | None, "tokens": Anything()},
        {"labels": Text() | None},
    ),
    checksum=True,
)

SAINT_CLASSES = Schema("a GraphSAINT folder", TableOf(Whole(-1)))
SAINT_ROLES = Schema("a GraphSAINT folder", Object({part: ListOf(NODES) for part in ("tr", "va", "te")}))
