"""Runs changed inputs through readers and keeps what ends in anything but a good result or a sentence of ours."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyformer.errors import PolyformerError
from tests.fuzz.folders import NO_BYTES
from tests.fuzz.mutations import damage, fresh_copy
from tests.fuzz.readers import COMMANDS, READERS, Reader

__all__ = ["CORPUS", "Finding", "Tally", "fuzz", "replay"]

_READERS = READERS | COMMANDS

CORPUS = Path(__file__).parent / "corpus"
SECONDS_FOR_ONE = 20
MEMORY = 6 << 30


@dataclass
class Finding:
    """An input that a reader did not answer as it should."""

    reader: str
    seed: int
    kinds: str
    what: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.reader}, seed {self.seed} ({self.kinds}): {self.what} {self.place}"


@dataclass
class Tally:
    """How inputs ended, by reader; and how often each kind of change was made."""

    inputs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


class _Hang(Exception):
    """A reader took too long."""


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for the inputs, in memory where that can be had: a flush to the disk costs more than a reader."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if os.access(memory, os.W_OK) else None)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """A time limit for one input, in the main thread. A process that was paused meanwhile gets its time again."""
    alarms = 0

    def stop(*_: object) -> None:
        nonlocal alarms
        alarms += 1
        if alarms == 2:
            raise _Hang
        signal.alarm(SECONDS_FOR_ONE // 2)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS_FOR_ONE // 2)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    import resource  # not there on Windows, where the fuzzer does not run

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _hashes(folder: Path) -> int:
    """How many files and lines carry a hash of themselves: who takes the hash away changes a file on purpose."""
    files = (path for path in folder.rglob("*.json*") if path.is_file() and path.stat().st_size < 1 << 30)
    return sum(path.read_bytes().count(b'"checksum"') for path in files)


def _judge(
    name: str, reader: Reader, good: Path, folder: Path, expected: Any, tally: Tally, seed: int, kinds: str
) -> None:
    tally.inputs[name] += 1
    try:
        with _bounded(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = reader.read(folder)
    except PolyformerError as error:
        tally.refused[name] += 1
        if len(str(error)) > 10_000 or "Traceback" in str(error):
            tally.findings.append(Finding(name, seed, kinds, f"a sentence of {len(str(error))} characters"))
    except _Hang:
        tally.findings.append(Finding(name, seed, kinds, f"took more than {SECONDS_FOR_ONE} s"))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in last if "/polyformer/" in frame.filename] or list(last)
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        tally.findings.append(Finding(name, seed, kinds, f"{type(error).__name__}: {str(error)[:120]}", place))
    else:
        if reader.sealed and value != expected and _hashes(folder) == _hashes(good):
            tally.findings.append(Finding(name, seed, kinds, "a change that went unnoticed"))


def fuzz(names: list[str], seeds: range, seconds: float = float("inf"), keep: Path | None = None) -> Tally:
    """Give each reader one changed input for each seed, until the time is over.

    Args:
        keep: where inputs that were findings are kept; nowhere by default.
    """
    tally, deadline = Tally(), time.monotonic() + seconds
    with _folder() as place, _limited_memory():
        for name in names:
            share = (deadline - time.monotonic()) / max(1, len(names) - names.index(name))
            _fuzz_one(name, seeds, share, Path(place), tally, keep)
    return tally


def _fuzz_one(name: str, seeds: range, seconds: float, place: Path, tally: Tally, keep: Path | None) -> None:
    reader, good, other, work = _READERS[name], place / "good" / name, place / "other" / name, place / "work"
    good.mkdir(parents=True)
    reader.make(good)
    if reader.make_other is not None:
        other.mkdir(parents=True)
        reader.make_other(other)
    fresh_copy(good, work)
    expected = reader.read(work)
    stop = time.monotonic() + seconds
    for seed in seeds:
        if time.monotonic() > stop:
            break
        changes = _damaged(name, seed, good, other, work)
        tally.kinds.update(kind for kind, _ in changes)
        kinds = ", ".join(f"{kind} in {file}" for kind, file in changes)
        before = len(tally.findings)
        _judge(name, reader, good, work, expected, tally, seed, kinds)
        if keep is not None and len(tally.findings) > before:
            _damaged(name, seed, good, other, keep / name.replace(" ", "-") / str(seed))


def _damaged(name: str, seed: int, good: Path, other: Path, work: Path) -> list[tuple[str, str]]:
    """Put the damaged input that a seed names into ``work``; returns the kinds of damage."""
    fresh_copy(good, work)
    changes = damage(random.Random(f"{name} {seed}"), work, other if other.is_dir() else None)
    reseal = _READERS[name].reseal
    if reseal is not None and not any(kind in NO_BYTES for kind, _ in changes):
        reseal(work)
    return changes


def replay(name: str, folder: Path) -> Tally:
    """Read a kept input again."""
    tally, reader = Tally(), _READERS[name]
    with _folder() as place:
        good, work = Path(place) / "good", Path(place) / "work"
        good.mkdir()
        reader.make(good)
        expected = reader.read(good) if reader.sealed else None
        shutil.copytree(folder, work)
        _judge(name, reader, good, work, expected, tally, 0, folder.name)
    return tally
