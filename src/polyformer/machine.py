"""What this machine has: memory, and how much of it this process has used."""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path

from polyformer.errors import InvalidParameter

__all__ = ["available_memory", "format_bytes", "parse_bytes", "peak_memory", "resident_bytes"]


def available_memory() -> int:
    """Bytes that can be allocated now without swapping; the smaller of the machine's and the control group's."""
    free = 8 << 30
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    try:
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            free = min(free, int(limit) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return max(free, 0)


def resident_bytes() -> int:
    """Resident memory of this process now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError, IndexError):
        return 512 << 20  # where the system does not tell


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def format_bytes(count: float) -> str:
    """A size to read.

    >>> format_bytes(3 * 2**30), format_bytes(1500)
    ('3.0 GiB', '1.5 KiB')
    """
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def parse_bytes(text: str) -> int:
    """The inverse, also for powers of ten.

    >>> parse_bytes("8GiB"), parse_bytes("500 MB"), parse_bytes("1024")
    (8589934592, 500000000, 1024)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if match is None:
        raise InvalidParameter(f"A size must read like 8GiB or 500MB. Got '{text}'.")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(unit or " "))
