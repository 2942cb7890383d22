"""One disturbance of one work: a child is forked, the layer is armed, and what is left is judged."""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import importlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from polyformer.errors import PolyformerError
from tests.crash.work import WORKS, Refused, Work, fresh

__all__ = ["DISK", "KINDS", "LEAST_BYTES", "Kind", "Moments", "Outcome", "disturb", "is_loaded", "warm_up"]

LEAST_BYTES = 1 << 12
"""Allocations from this size on are counted and failed."""

DISK, _MEMORY = 0, 1
_SECONDS = 300
"""How long a work may take before it counts as one that hangs; alone it takes a second."""

_DONE, _REFUSED, _FAULT = 0, 10, 11
_LAYER = ctypes.CDLL(None)


@dataclass(frozen=True)
class Kind:
    """A kind of disturbance.

    Attributes:
        counter: which operations are counted: those of the disk, or large allocations.
        error: what the operation that is reached gives: an errno, 0 for a kill, -1 for a kill after half a write, -2
            for half a write that says so.
        lasting: whether all later operations fail too.
        group: "kills", "errors" or "allocations", for the counts.
    """

    counter: int
    error: int
    lasting: bool
    group: str


KINDS = {
    "kill": Kind(DISK, 0, False, "kills"),
    "kill after half a write": Kind(DISK, -1, False, "kills"),
    "kill at an allocation": Kind(_MEMORY, 0, False, "kills"),
    "no space": Kind(DISK, errno.ENOSPC, False, "errors"),
    "no space from then on": Kind(DISK, errno.ENOSPC, True, "errors"),
    "input/output error": Kind(DISK, errno.EIO, False, "errors"),
    "no permission": Kind(DISK, errno.EACCES, False, "errors"),
    "half a write": Kind(DISK, -2, False, "errors"),
    "failed allocation": Kind(_MEMORY, errno.ENOMEM, False, "allocations"),
}


@dataclass(frozen=True)
class Moments:
    """What an undisturbed work does: how many operations of the disk, how many allocations, and what it makes."""

    disk: int
    memory: int
    expected: str


@dataclass(frozen=True)
class Outcome:
    """How a disturbed work ended.

    Attributes:
        end: "done", "refused", "killed" or "aborted" (a library ended the process because memory had run out: see
            :func:`_is_of_a_library`).
        fault: what is wrong afterwards; "" if nothing is.
    """

    end: str
    fault: str = ""


def is_loaded() -> bool:
    """Whether the layer lies between this process and the system."""
    return hasattr(_LAYER, "crash_arm")


def _arm(kind: int, after: int, error: int, lasting: bool) -> None:
    _LAYER.crash_arm(kind, ctypes.c_long(after), error, int(lasting), ctypes.c_size_t(LEAST_BYTES))


def _child(act: Callable[[], object], folder: Path) -> int:
    """Run in a forked process: its end as a code; what went wrong stands in the folder's ``fault``."""
    number = os.fork()
    if number:
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    code = _FAULT
    try:
        sink = os.open(f"{folder}.printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        faulthandler.enable()
        faulthandler.dump_traceback_later(_SECONDS, exit=True)
        act()
        code = _DONE
    except (PolyformerError, Refused, MemoryError):
        code = _REFUSED
    except BaseException:
        _arm(DISK, -1, 0, False)
        Path(f"{folder}.fault").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def warm_up(name: str, place: Path) -> Moments:
    """Prepare a work, do it once undisturbed, and import here what it imported, so that later children need not."""
    work, good, folder, seen = WORKS[name], place / "good", place / "work", place / "seen"
    good.mkdir(parents=True)
    code = _child(lambda: work.prepare(good), good)
    assert code == _DONE, f"{name}: {_fault(good)}"

    def undisturbed() -> None:
        work.do(folder)
        seen.write_text("\n".join(sys.modules))

    fresh(good, folder)
    assert _child(undisturbed, folder) == _DONE, f"{name}: {_fault(folder)}"
    for module in seen.read_text().split():
        if not module.startswith(("__main__", "_pytest", "pytest")):
            try:
                importlib.import_module(module)
            except Exception:  # a name that stands in sys.modules and is no module of a file
                continue

    def counted() -> None:
        _arm(DISK, -1, 0, False)
        work.do(folder)
        seen.write_text(f"{_LAYER.crash_seen(DISK)} {_LAYER.crash_seen(_MEMORY)}")

    fresh(good, folder)
    assert _child(counted, folder) == _DONE, f"{name}: {_fault(folder)}"
    disk, memory = map(int, seen.read_text().split())
    return Moments(disk, memory, work.whole(folder))


def _fault(folder: Path) -> str:
    texts = [Path(f"{folder}.{name}") for name in ("fault", "printed")]
    return " ".join(path.read_text(errors="replace")[-1500:] for path in texts if path.exists())


def disturb(name: str, kind: Kind, after: int, place: Path, expected: str) -> Outcome:
    """Disturb a work at one moment, look at what it left, take it up, and compare the result."""
    work, folder = WORKS[name], place / f"work{os.getpid()}"
    fresh(place / "good", folder)
    Path(f"{folder}.fault").unlink(missing_ok=True)

    def disturbed() -> None:
        _arm(kind.counter, after, kind.error, kind.lasting)
        work.do(folder)

    code = _child(disturbed, folder)
    ends = {_DONE: "done", _REFUSED: "refused", -9: "killed"}
    if code not in ends and not (kind.counter == _MEMORY and _is_of_a_library(code, folder)):
        return Outcome("failed", f"ended with {code}: {_fault(folder)}")
    return Outcome(ends.get(code, "aborted"), _judge(work, folder, expected, code == _REFUSED and not kind.lasting))


def _is_of_a_library(code: int, folder: Path) -> bool:
    """Whether a process that memory ran out on was ended by a library that cannot answer with an error.

    Rust's allocator aborts, the loader ends with 127 where a thread-local variable has no place, and numpy's reductions
    and torch's GELU read through the null pointer that they got. A crash inside our kernels is none of these: the
    innermost frame of Python is then in ``polyformer/native``.
    """
    text = Path(f"{folder}.printed").read_text(errors="replace")
    innermost = re.search(r'most recent call first\):\s+File "([^"]+)"', text)
    in_kernel = innermost is None or "/polyformer/native/" in innermost[1]
    loader = code == 127 and "cannot allocate memory for thread-local data" in text
    return loader or (code in (-signal.SIGABRT, -signal.SIGSEGV) and not in_kernel)


def _judge(work: Work, folder: Path, expected: str, cleaned: bool) -> str:
    """What is wrong with what a disturbed work left, and with what comes of it when the work is taken up."""
    try:
        before = work.whole(folder)
        if before not in ("", expected):
            return "neither the old nor the new state"
        if cleaned and (leftovers := _leftovers(folder)):
            return f"left behind: {leftovers}"
        if (ended := _child(lambda: work.do(folder), folder)) != _DONE:
            return f"taken up: ended with {ended}: {_fault(folder)}"
        return "" if work.whole(folder) == expected else "another result than without the disturbance"
    except (PolyformerError, AssertionError) as damaged:
        return f"damaged: {damaged}"


def _leftovers(folder: Path) -> list[str]:
    """Files with temporary names, which a work that ends with a sentence takes away."""
    pattern = re.compile(r"\..*\.[0-9a-f]{12}$")
    return [str(path.relative_to(folder)) for path in folder.rglob(".*") if pattern.match(path.name)]
