"""How much memory this process holds, and how much of a bound is left for sorting."""

from __future__ import annotations

import os
from pathlib import Path

from polyformer.errors import InvalidParameter

__all__ = ["resident_bytes", "spare_bytes"]

_RESERVE = 192 << 20  # batches that are being read or written
_LEAST = 32 << 20
_ASSUMED = 512 << 20  # where the system does not tell


def resident_bytes() -> int:
    """Resident memory of this process now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError, IndexError):
        return _ASSUMED


def spare_bytes(memory: int) -> int:
    """What sorting may use of a bound of ``memory`` bytes on the whole process."""
    used = resident_bytes() + _RESERVE
    if memory - used < _LEAST:
        needed = -(-(used + _LEAST) // (1 << 20))
        raise InvalidParameter(
            f"'memory' must be at least {needed} MiB to read this source. Got {memory / (1 << 20):.0f} MiB."
        )
    return memory - used
