"""What the compiled library exports: each function's name, and the names and kinds of its arguments in their order.

The loader sets the types of ctypes from this table, :mod:`polyformer.native.border` checks arguments by it, and a test
holds it against the C++ sources. ``setup.py`` reads this file while nothing is installed, so it imports nothing but the
standard library.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

__all__ = ["ABI", "SIGNATURES", "Array", "Kind", "Number", "Signature"]


class Number(NamedTuple):
    """A number; ``c_type`` is its type as the C++ sources write it."""

    c_type: str


class Array(NamedTuple):
    """An address of numbers, C-contiguous unless ``rows_apart``.

    Args:
        dtype: numpy's and torch's name of the numbers' type.
        sizes: names of the arguments whose product is the least count of numbers; empty where no arguments give it.
        more: count of numbers that is added to that product.
        written: the function writes to the array; in C++ its target is not ``const``.
        optional: the argument may be None, which becomes a null pointer.
        rows_apart: a matrix whose rows are contiguous, but need not follow each other.
        times: factor of the product of the sizes.
        strided: the layout is told by arguments, so neither contiguity nor the count is checked.
    """

    dtype: str
    sizes: tuple[str, ...] = ()
    more: int = 0
    written: bool = False
    optional: bool = False
    rows_apart: bool = False
    times: int = 1
    strided: bool = False


Kind = Number | Array
Signature = dict[str, Kind]

_INT, _INT64, _UINT32, _UINT64 = Number("int"), Number("int64_t"), Number("uint32_t"), Number("uint64_t")
_FLOAT, _DOUBLE = Number("float"), Number("double")


def _product(dtype: str) -> Signature:
    return {
        "rows": _INT64,
        "width": _INT,
        "indptr": Array("int64", ("rows",), more=1),
        "indices": Array("int32"),
        "values": Array("float32", optional=True),
        "row_scale": Array("float64", ("rows",), optional=True),
        "loop": _DOUBLE,
        "first_row": _INT64,
        "x": Array(dtype),
        "alpha": _DOUBLE,
        "previous": Array(dtype, ("rows", "width"), optional=True),
        "beta": _DOUBLE,
        "out": Array(dtype, ("rows", "width"), written=True),
        "emit": Array(dtype, ("rows", "emit_width"), written=True, optional=True, rows_apart=True),
        "emit_stride": _INT64,
        "emit_width": _INT64,
        "emit_scale": Array(dtype, ("rows",), optional=True),
        "threads": _INT,
    }


def _half_product() -> Signature:
    """A step without emission: what is emitted is converted by the caller."""
    return {name: kind for name, kind in _product("float16").items() if not name.startswith("emit")}


def _wide_product(dtype: str) -> Signature:
    return {
        "rows": _INT64,
        "columns": _INT64,
        "indptr": Array("int64", ("rows",), more=1),
        "indices": Array("int32"),
        "values": Array("float32", optional=True),
        "x": Array(dtype),
        "out": Array(dtype, ("rows", "columns"), written=True),
        "threads": _INT,
    }


def _chebyshev(dtype: str, forward: bool) -> Signature:
    of_nodes = ("nodes", "columns")  # tokens of some nodes; no argument gives their number
    return {
        "nodes": _INT64,
        "columns": _INT64,
        "order": _INT,
        "indptr": Array("int64", ("nodes",), more=1),
        "indices": Array("int32"),
        "values": Array("float32", optional=True),
        "squared": Array("float64", ("nodes",)),
        "loop": _DOUBLE,
        "scaling": Array(dtype, ("nodes",)),
        "inverse": Array(dtype, ("nodes",)),
        "place": Array("int32", ("nodes",)),
        "input": Array(dtype, of_nodes if forward else ()),
        "output": Array(dtype, () if forward else of_nodes, written=True),
        "room": Array(dtype, ("threads", "nodes", "width"), written=True),
        "width": _INT,
        "threads": _INT,
    }


_MASK: Signature = {"seed": _UINT32, "threshold": _UINT32, "keep": _FLOAT}

_ATTENTION: Signature = {
    "nodes": _INT64,
    "heads": _INT,
    "tokens": _INT,
    "padded": _INT,
    "head_width": _INT,
    "value_width": _INT,
    "query_key": Array("float32", ("tokens", "nodes", "heads", "head_width")),
    "values": Array("float32", ("nodes", "tokens", "heads", "value_width")),
    "bias": Array("float32", ("heads", "tokens")),
    "factor": _FLOAT,
    **_MASK,
    "scores": Array("float32", ("nodes", "heads", "tokens", "padded"), written=True),
}

_COLUMNS: Signature = {
    "count": _INT64,
    "rows": _INT64,
    "width": _INT64,
    "basis": Array("float64", ("count", "rows", "width")),
}

_GROUPS: Signature = {"groups": _INT64, "rows": _INT64, "width": _INT64}

_GATE: Signature = {
    "nodes": _INT64,
    "heads": _INT,
    "tokens": _INT,
    "channels": _INT,
    "token_rows": Array("float32", ("nodes", "tokens", "channels")),
    "products": Array("float32", ("nodes", "heads", "tokens")),
    "weight_sums": Array("float32", ("heads", "tokens")),
}

_GATE_STATE: Signature = {
    "order_bias": Array("float32", ("heads", "tokens")),
    "statistics": Array("float32", ("nodes",), times=2, written=True, optional=True),
    "kept": Array("float32", ("nodes", "heads", "tokens"), written=True),
}

_FINISH: Signature = {
    "rows": _INT64,
    "width": _INT64,
    "x": Array("float32", ("rows", "width")),
    "scale": Array("float32", ("width",)),
    "shift": Array("float32", ("width",)),
}

_NORM: Signature = {
    "rows": _INT64,
    "width": _INT64,
    "x": Array("float32", ("rows", "width")),
    "weight": Array("float32", ("width",)),
}

_TOKEN_HOP: Signature = {
    "rows": _INT64,
    "stored_nodes": _INT64,
    "tokens": _INT64,
    "columns": _INT64,
    "order": _INT,
    "nodes": Array("int64", ("rows",)),
    "indptr": Array("int64"),
    "indices": Array("int32"),
    "weights": Array("float32", optional=True),
    "degrees": Array("float64", optional=True),
    "loop": _DOUBLE,
    "stored": Array("float32"),
    "log": Array("float32"),
    "log_now": Array("int32", ("stored_nodes",), optional=True),
    "log_last": Array("int32", ("stored_nodes",), optional=True),
    "log_previous": Array("int32", ("stored_nodes",), optional=True),
    "place_last": Array("int32", ("stored_nodes",), optional=True),
    "work_last": Array("float32", optional=True),
    "place_previous": Array("int32", ("stored_nodes",), optional=True),
    "work_previous": Array("float32", optional=True),
}

SIGNATURES: dict[str, Signature] = {
    "product_float32": _product("float32"),
    "product_float64": _product("float64"),
    "product_float16": _half_product(),
    "wide_product_float32": _wide_product("float32"),
    "wide_product_float64": _wide_product("float64"),
    "column_dots": _COLUMNS
    | {
        "x": Array("float64", ("rows", "width")),
        "dots": Array("float64", ("count", "width"), written=True),
        "threads": _INT,
    },
    "column_subtract": _COLUMNS
    | {
        "weights": Array("float64", ("count", "width")),
        "x": Array("float64", ("rows", "width"), written=True),
        "threads": _INT,
    },
    "mix": {
        "rows": _INT64,
        "count": _INT,
        "width": _INT64,
        "matrix": Array("float32", ("count", "count")),
        "tokens": Array("float32", ("rows", "count", "width"), written=True),
        "threads": _INT,
    },
    "chebyshev_float32": _chebyshev("float32", forward=True),
    "chebyshev_float64": _chebyshev("float64", forward=True),
    "chebyshev_adjoint_float32": _chebyshev("float32", forward=False),
    "chebyshev_adjoint_float64": _chebyshev("float64", forward=False),
    "token_rows": _TOKEN_HOP
    | {
        "out": Array("float32", ("rows", "columns"), written=True),
        "moved": Array("float64", ("rows",), written=True),
        "threads": _INT,
    },
    "follow_rows": _TOKEN_HOP
    | {
        "move_place": Array("int32", ("stored_nodes",)),
        "moves": Array("float32"),
        "gain": Array("float64", ("rows",)),
        "threshold": _DOUBLE,
        "left_out": Array("float64", ("rows",), written=True),
        "state": Array("int32", ("rows",), written=True),
        "out": Array("float32", ("rows", "columns"), written=True),
        "moved": Array("float64", ("rows",), written=True),
        "threads": _INT,
    },
    "token_moves": {
        "count": _INT64,
        "stored_nodes": _INT64,
        "tokens": _INT64,
        "columns": _INT64,
        "order": _INT,
        "nodes": Array("int64", ("count",)),
        "scale": Array("float64", ("count",)),
        "stored_scale": Array("float64", ("count",)),
        "stored": Array("float32"),
        "log": Array("float32"),
        "log_place": Array("int32", ("stored_nodes",), optional=True),
        "place": Array("int32", ("stored_nodes",), optional=True),
        "work": Array("float32", optional=True),
        "moves": Array("float32", ("count", "columns"), written=True),
        "norms": Array("float64", ("count",), written=True),
        "threads": _INT,
    },
    "felt_moves": {
        "count": _INT64,
        "nodes": Array("int64", ("count",)),
        "norms": Array("float64", ("count",)),
        "direct": _INT64,
        "direct_nodes": Array("int64", ("direct",)),
        "direct_norms": Array("float64", ("direct",)),
        "indptr": Array("int64"),
        "indices": Array("int32"),
        "weights": Array("float32", optional=True),
        "loop": _DOUBLE,
        "gain": Array("float64", written=True),
        "felt": Array("int64", written=True),
        "num_felt": Array("int64", more=1, written=True),
    },
    "attention_forward": _ATTENTION
    | {
        "out": Array("float32", ("nodes", "tokens", "heads", "value_width"), written=True),
        "threads": _INT,
    },
    "attention_backward": _ATTENTION
    | {
        "out_grad": Array("float32", ("nodes", "tokens", "heads", "value_width")),
        "query_key_grad": Array("float32", ("tokens", "nodes", "heads", "head_width"), written=True),
        "values_grad": Array("float32", ("nodes", "tokens", "heads", "value_width"), written=True),
        "bias_grad": Array("float32", ("heads", "tokens"), written=True),
        "threads": _INT,
    },
    "dropout": {
        "count": _INT64,
        "x": Array("float32", ("count",)),
        "residual": Array("float32", ("count",), optional=True),
        **_MASK,
        "out": Array("float32", ("count",), written=True),
        "threads": _INT,
    },
    "bias_relu": _GROUPS
    | {
        "bias": Array("float32", ("groups", "width")),
        "x": Array("float32", ("groups", "rows", "width"), written=True),
        "threads": _INT,
    },
    "bias_relu_backward": _GROUPS
    | {
        "out": Array("float32", ("groups", "rows", "width")),
        "grad": Array("float32", ("groups", "rows", "width")),
        "x_grad": Array("float32", ("groups", "rows", "width"), written=True),
        "bias_grad": Array("float32", ("groups", "width"), written=True),
        "threads": _INT,
    },
    "gate_forward": _GATE
    | {"bias": Array("float32", ("heads", "tokens"))}
    | _GATE_STATE
    | {"out": Array("float32", ("nodes", "tokens", "channels"), written=True), "threads": _INT},
    "gate_backward": _GATE
    | _GATE_STATE
    | {
        "out_grad": Array("float32", ("nodes", "tokens", "channels")),
        "token_grad": Array("float32", ("nodes", "tokens", "channels"), written=True),
        "product_grad": Array("float32", ("nodes", "heads", "tokens"), written=True),
        "sums": Array("float32", ("heads", "tokens"), times=3, written=True),
        "threads": _INT,
    },
    "column_moments": {
        "rows": _INT64,
        "width": _INT64,
        "x": Array("float32", ("rows", "width")),
        "centre": Array("float32", ("width",)),
        "sums": Array("float32", ("width",), times=2, written=True),
        "threads": _INT,
    },
    "finish_forward": _FINISH
    | {
        "residual": Array("float32", ("rows", "width"), optional=True),
        **_MASK,
        "out": Array("float32", ("rows", "width"), written=True),
        "threads": _INT,
    },
    "finish_backward": _FINISH
    | {
        "centre": Array("float32", ("width",)),
        **_MASK,
        "out_grad": Array("float32", ("rows", "width")),
        "out": Array("float32", ("rows", "width"), written=True),
        "sums": Array("float32", ("width",), times=2, written=True),
        "threads": _INT,
    },
    "combine_columns": {
        "rows": _INT64,
        "width": _INT64,
        "factors": Array("float32", ("width",), times=3),
        "x": Array("float32", ("rows", "width")),
        "out": Array("float32", ("rows", "width"), written=True),
        "threads": _INT,
    },
    "matmul": {
        **dict.fromkeys(("groups", "m", "n", "k"), _INT64),
        "a": Array("float32", strided=True),
        **dict.fromkeys(("a_group", "a_row", "a_column"), _INT64),
        "b": Array("float32", strided=True),
        **dict.fromkeys(("b_group", "b_row", "b_column"), _INT64),
        "c": Array("float32", strided=True, written=True),
        **dict.fromkeys(("c_group", "c_row"), _INT64),
        "bias": Array("float32", ("groups", "n"), optional=True),
        "gate": Array("float32", ("groups", "m", "n"), optional=True),
        "b_sums": Array("float32", ("groups", "n"), written=True, optional=True),
        "relu": _INT,
        "accumulate": _INT,
        "threads": _INT,
    },
    "norm_forward": _NORM
    | {
        "bias": Array("float32", ("width",)),
        "epsilon": _FLOAT,
        "statistics": Array("float32", ("rows",), times=2, written=True),
        "out": Array("float32", ("rows", "width"), written=True),
        "threads": _INT,
    },
    "norm_backward": _NORM
    | {
        "statistics": Array("float32", ("rows",), times=2, written=True),
        "out_grad": Array("float32", ("rows", "width")),
        "residual_grad": Array("float32", ("rows", "width"), optional=True),
        "x_grad": Array("float32", ("rows", "width"), written=True),
        "sums": Array("float32", ("width",), times=2, written=True),
        "threads": _INT,
    },
    "gelu_forward": {
        "rows": _INT64,
        "width": _INT64,
        "x": Array("float32", ("rows", "width")),
        "out": Array("float32", ("rows", "width"), written=True),
        "threads": _INT,
    },
    "gelu_backward": {
        "rows": _INT64,
        "width": _INT64,
        "x": Array("float32", ("rows", "width")),
        "grad": Array("float32", ("rows", "width"), written=True),
        "threads": _INT,
    },
    "synthetic_owners": {
        "nodes": _INT64,
        "stubs": Array("int64", ("nodes",), more=1),
        "shift": _INT,
        "owners": Array("int32", written=True),
    },
    "synthetic_labels": {
        "nodes": _INT64,
        "communities": _INT64,
        "first": Array("int64", ("communities",), more=1),
        "seed": _UINT64,
        "begin": _INT64,
        "rows": _INT64,
        "labels": Array("int32", ("rows",), written=True),
        "threads": _INT,
    },
    "synthetic_sample": {
        "nodes": _INT64,
        "seed": _UINT64,
        "count": _INT64,
        "drawn": Array("int64", ("count",), written=True),
        "threads": _INT,
    },
    "synthetic_rows": {
        "nodes": _INT64,
        "communities": _INT64,
        "first": Array("int64", ("communities",), more=1),
        "stubs": Array("int64", ("nodes",), more=1),
        "within": Array("int64", ("communities",)),
        "owners": Array("int32"),
        "shift": _INT,
        "seed": _UINT64,
        "begin": _INT64,
        "most_rows": _INT64,
        "indices": Array("int32", ("capacity",), written=True),
        "capacity": _INT64,
        "lengths": Array("int32", ("most_rows",), written=True),
        "counts": Array("int64", (), more=2, written=True),
        "threads": _INT,
    },
    "synthetic_features": {
        "seed": _UINT64,
        "begin": _INT64,
        "rows": _INT64,
        "width": _INT64,
        "labels": Array("int32", ("rows",)),
        "centres": Array("float32"),
        "signal": _FLOAT,
        "noise": _FLOAT,
        "out": Array("float32", ("rows", "width"), written=True),
        "threads": _INT,
    },
    "catch_bus_errors": {"code": _INT},
}
"""Signatures by the name in C++ without ``polyformer_``. Each function returns a status; see ``border.h``."""

ABI = zlib.crc32(repr(SIGNATURES).encode()) >> 1
"""A digest of the table. ``setup.py`` compiles it into the library; the loader refuses a library with another."""
