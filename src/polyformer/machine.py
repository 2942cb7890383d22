"""The memory and cores of this machine, and the memory that this process uses."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from polyformer.errors import InvalidParameter, OutOfResources

__all__ = [
    "available_memory",
    "format_bytes",
    "is_out_of_memory",
    "keeping_freed_memory",
    "num_cores",
    "parse_bytes",
    "peak_memory",
    "require_memory",
    "resident_bytes",
    "usable_memory",
]


def available_memory() -> int:
    """Bytes that can be allocated now without swapping: the least that the machine and the control groups leave."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = _memory_elsewhere()
    return max(0, min([free, *_left_in_groups()]))


def _memory_elsewhere() -> int:
    """Free memory where there is no ``/proc``: half of the machine's on macOS, what Windows tells, else 8 GiB."""
    try:
        if os.name == "nt":
            return _free_on_windows()
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return 8 << 30


def _free_on_windows() -> int:
    class Status(ctypes.Structure):
        """MEMORYSTATUSEX: sizes in bytes after two 32-bit numbers, the second of which is the load in percent."""

        _fields_: ClassVar = [
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            *(
                (name, ctypes.c_uint64)
                for name in ("total", "free", "pages", "free_pages", "virtual", "free_virtual", "more")
            ),
        ]

    status = Status(length=ctypes.sizeof(Status))
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):  # type: ignore[attr-defined, unused-ignore]
        raise OSError("Windows does not tell how much memory is free")
    return int(status.free)


def _left_in_groups() -> Iterator[int]:
    """Bytes that each control group of this process, of either version, leaves free; the page cache counts as free."""
    try:
        memberships = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in memberships:
        if controllers not in ("", "memory"):
            continue
        old = controllers == "memory"
        mount = Path("/sys/fs/cgroup") / controllers
        limit, used = ("memory.limit_in_bytes", "memory.usage_in_bytes") if old else ("memory.max", "memory.current")
        for group in (mount, mount / path.lstrip("/")):  # inside a container the mount itself is the container's group
            try:
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                cached = int(stat["total_inactive_file" if old else "inactive_file"])
                yield int((group / limit).read_text()) - int((group / used).read_text()) + cached
            except (OSError, ValueError, KeyError):  # no such group, or "max"
                continue


def resident_bytes() -> int:
    """Resident memory of this process now; where the system does not say, the most that it was."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError, IndexError):
        return _highest_resident() or 512 << 20  # a guess where the system does not say


def usable_memory() -> int:
    """Bytes that a program may take by default: 80 % of the free memory."""
    return int(0.8 * available_memory())


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = {_MMAP_THRESHOLD: 1 << 30, _TRIM_THRESHOLD: 2**31 - 1}
_GIVEN_BACK = {_MMAP_THRESHOLD: 1 << 25, _TRIM_THRESHOLD: 1 << 26}
"""Options of glibc's ``mallopt`` and their values; the values that end the keeping are the highest that glibc reaches
by itself."""

_MOST_KEPT = 512 << 20


def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows
        return None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


@contextlib.contextmanager
def keeping_freed_memory() -> Iterator[Callable[[], None]]:
    """Inside this context, reuse freed blocks of up to 1 GiB instead of returning them to the system; glibc only.

    A step in full batches frees the blocks that the next step needs. If the blocks went back to the system, their pages
    would be cleared and mapped again, which took three quarters of the time of wide baselines. The context changes the
    allocator of the whole process, so it is for processes that the command line started, not for a library's call.

    Yields:
        A function to call after every step: it returns free memory to the system if the process has grown by 512 MiB
        since the first step.
    """
    library = _glibc()
    if library is None:
        yield lambda: None
        return
    usual = 0

    def trim() -> None:
        nonlocal usual
        usual = usual or resident_bytes()
        if resident_bytes() > usual + _MOST_KEPT:  # free memory in pieces too small to be reused
            library.malloc_trim(0)
            usual = max(usual, resident_bytes())

    try:
        for option, value in _KEPT.items():
            library.mallopt(option, value)
        yield trim
    finally:
        for option, value in _GIVEN_BACK.items():
            library.mallopt(option, value)
        library.malloc_trim(0)


def require_memory(what: str, size: float, advice: str, limit: int | None = None) -> None:
    """Refuse work that cannot fit before it starts.

    Args:
        what: the subject of the sentence, e.g. ``"The tokens"``.
        size: bytes that the work takes besides what the process holds already.
        advice: the next step, a sentence.
        limit: bytes that may be used; :func:`usable_memory` by default.
    """
    free = usable_memory() if limit is None else limit
    if size > free:
        raise OutOfResources(
            f"{what} would take {format_bytes(size)} of memory besides what is held already, more than the "
            f"{format_bytes(free)} that may be used. {advice}"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Arrow, torch and the system have errors of their own for that.

    A function of C that fails without saying why has not got the memory for its exception.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, SystemError) and "without" in str(error) and "exception" in str(error):
        return True
    words = ("you tried to allocate", "bad_alloc")
    return type(error).__name__ == "ArrowMemoryError" or any(word in str(error) for word in words)


def num_cores() -> int:
    """Number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes.

    On Linux the number comes from ``/proc``, because ``getrusage`` never says less than the peak of the parent process.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return _highest_resident() or resident_bytes()


def _highest_resident() -> int | None:
    """The largest resident size so far by ``getrusage``; None where there is no such function, as on Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def format_bytes(count: float) -> str:
    """A size for people to read.

    >>> format_bytes(3 * 2**30), format_bytes(1500)
    ('3.0 GiB', '1.5 KiB')
    """
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def parse_bytes(text: str) -> int:
    """The inverse of :func:`format_bytes`, also for powers of ten.

    >>> parse_bytes("8GiB"), parse_bytes("500 MB"), parse_bytes("1024")
    (8589934592, 500000000, 1024)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if match is None:
        raise InvalidParameter(f"A size must read like 8GiB or 500MB. Got '{text}'.")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(unit or " "))
