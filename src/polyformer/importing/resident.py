"""How much of a bound on memory is left for sorting."""

from __future__ import annotations

from polyformer.errors import InvalidParameter
from polyformer.machine import resident_bytes

__all__ = ["spare_bytes"]

_RESERVE = 192 << 20  # bytes of the batches that are read or written
_LEAST = 32 << 20


def spare_bytes(memory: int) -> int:
    """Bytes that sorting may use if the whole process may use ``memory`` bytes."""
    used = resident_bytes() + _RESERVE
    if memory - used < _LEAST:
        needed = -(-(used + _LEAST) // (1 << 20))
        raise InvalidParameter(
            f"'memory' must be at least {needed} MiB to read this source. Got {memory / (1 << 20):.0f} MiB."
        )
    return memory - used
