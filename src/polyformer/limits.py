"""How much a file may claim: every bound on counts, sizes and texts that come from a file or from the command line.

A count is checked against these bounds before anything of that size is allocated or written: a file of a kilobyte that
claims 10^12 nodes must cost a kilobyte.
"""

from __future__ import annotations

import math
from typing import Any

from polyformer.errors import InvalidData, InvalidParameter
from polyformer.machine import require_memory

__all__ = [
    "INFLATION",
    "MOST_JSON_BYTES",
    "MOST_NODES",
    "MOST_SPEC_CHARACTERS",
    "MOST_WHOLE",
    "array_bytes",
    "check_claimed_nodes",
    "check_claimed_rows",
    "check_fits",
    "check_node_count",
    "check_size",
    "check_unpacked",
    "require_room",
]

MOST_NODES = 2**31 - 1
"""Column ids of the sparse kernel are int32."""

MOST_WHOLE = 2**63 - 1
"""No whole number of ours is larger: all of them count something or fit an int64."""

MOST_JSON_BYTES = 256 << 20
"""The longest JSON file that is read; those that we write stay below some megabytes."""

MOST_SPEC_CHARACTERS = 10_000
"""The longest text of a name with options that is taken apart, e.g. ``minefield:width=20``."""

MOST_SIZES = {"num_layers": 1_000, "hops": 100, "draws": 10_000, "walk_steps": 10_000, "heads": 1 << 16}
"""The largest values of settings that decide how much is built; of others see :func:`check_size`."""

MOST_CHANNELS = 1 << 20
"""The largest width of a layer: a square matrix of it takes 4 TiB, so that a larger one is a slip of the pen."""

INFLATION = 1032
"""What deflate, of zip and gzip files, can make of one byte."""

_SMALL_BYTES = 64 << 20
_FREE_NODES = 1 << 24
_NODES_PER_BYTE = 64


def array_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    """What an array takes, as a Python integer, which never overflows.

    >>> array_bytes((10**12, 10**12), "int64")
    8000000000000000000000000
    """
    import numpy as np  # here, as the command line's help reads this module

    return math.prod(int(size) for size in shape) * np.dtype(dtype).itemsize


def check_fits(shape: tuple[int, ...], dtype: Any, room: int, what: str = "the array") -> None:
    """Refuse an array that claims more bytes than the ``room`` that its file has for it, by a ValueError."""
    needed = array_bytes(shape, dtype)
    if any(size < 0 for size in shape) or needed > room:
        raise ValueError(f"{what} claims {needed:,} bytes for the shape {shape}, and the file has {room:,}")


def check_size(name: str, value: int) -> int:
    """A whole number that a setting may have: one that no machine can build is refused before anything is allocated.

    >>> check_size("hidden_channels", 64)
    64
    """
    most = MOST_SIZES.get(name, MOST_CHANNELS if name.endswith("channels") else MOST_WHOLE)
    if abs(value) > most:
        raise InvalidParameter(f"'{name}' must be at most {most:,}. Got {str(value)[:40]}. Use a smaller number.")
    return value


def require_room(size: int, what: str) -> None:
    """Refuse to read an array that does not fit in memory; small arrays are not asked about."""
    if size > _SMALL_BYTES:
        require_memory(what, size, "Use a machine with more memory, or a smaller file.")


def check_unpacked(claimed: int, packed: int, what: str) -> None:
    """Refuse content that claims to be larger than its packed bytes can unfold to, or than memory can hold."""
    most = INFLATION * max(packed, 1)
    if claimed > most:
        raise ValueError(f"{what} claims {claimed:,} bytes, and the file's {packed:,} bytes unfold to at most {most:,}")
    require_room(claimed, what)


def check_node_count(count: int, source: str = "") -> int:
    """A number of nodes that a graph can have.

    Args:
        source: where the number was read, for the sentence.
    """
    if not 1 <= count <= MOST_NODES:
        place = f" in '{source}'" if source else ""
        raise InvalidData(f"A graph can have 1 to 2^31 - 1 nodes. Got {count}{place}. Correct the number.")
    return count


def check_claimed_rows(count: int, source_bytes: int, source: str) -> None:
    """Refuse a table whose rows are out of proportion to its file: Parquet writes a row that repeats for ever once.

    Up to 16,777,216 rows are taken on trust; beyond that, 64 for every byte of the file.
    """
    most = max(_FREE_NODES, _NODES_PER_BYTE * source_bytes)
    if count > most:
        raise InvalidData(
            f"'{source}' claims {count:,} rows, and its {source_bytes:,} bytes can tell few of them apart. At most "
            f"{most:,} rows are believed. Write each row once."
        )


def check_claimed_nodes(count: int, source_bytes: int, source: str) -> int:
    """A number of nodes that a file claims without a row for each: it must be in proportion to the file.

    Nodes without edges, features and labels cost nothing in such a file, but 8 bytes each on disk and in memory. Up to
    16,777,216 of them are taken on trust; beyond that, 64 for every byte of the source.
    """
    check_node_count(count, source)
    most = max(_FREE_NODES, _NODES_PER_BYTE * source_bytes)
    if count > most:
        raise InvalidData(
            f"'{source}' claims {count:,} nodes, but its {source_bytes:,} bytes can say something about few of them. "
            f"At most {most:,} nodes are believed. Correct the number, or add features or labels for the nodes."
        )
    return count
