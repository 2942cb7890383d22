"""Sort both directions of every edge and drop repeats, in bounded memory.

An entry is one 64-bit key, ``row · 2^32 + column``. Buffers are filled, sorted and written to disk as sorted runs. Then
all runs are cut at the same keys into ranges, and each range is sorted in memory. The cuts are chosen from samples of
the runs so that a range fits in memory whatever the degrees are. Two threads sort while the caller reads or writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyformer.importing.edges import EdgeBatch

__all__ = ["BYTES_PER_ENTRY", "EdgeSorter", "Entries"]

BYTES_PER_ENTRY = {False: 8, True: 44}
"""Bytes of memory per entry, without and with weights, whose sorting needs an order and a copy of keys and weights."""

_CHUNK = 1 << 18
_THREADS = 2
_LARGEST_RUN = {False: 1 << 24, True: 1 << 22}  # weights are sorted by an order, which has more cache misses
_LARGEST_RANGE = 1 << 22  # small pieces stay in cache and keep all threads busy


_Buffer = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True, eq=False)
class Entries:
    """Sorted keys (uint64) without repeats and their weights."""

    keys: np.ndarray
    weights: np.ndarray | None


@dataclass(frozen=True, eq=False)
class _Run:
    """Sorted entries on disk, with every ``step``-th key in memory."""

    path: Path
    length: int
    samples: np.ndarray
    step: int

    def position(self, key: np.uint64) -> int:
        """How many keys are smaller than ``key``."""
        block = int(np.searchsorted(self.samples, key, side="left"))
        if block == 0:
            return 0
        start = (block - 1) * self.step
        keys = self.keys(start, min(self.length, start + self.step))
        return start + int(np.searchsorted(keys, key, side="left"))

    def keys(self, start: int, stop: int) -> np.ndarray:
        return np.fromfile(self.path, np.uint64, stop - start, offset=8 * start)

    def weights(self, start: int, stop: int) -> np.ndarray:
        return np.fromfile(self.path.with_suffix(".weights"), np.float32, stop - start, offset=4 * start)


class EdgeSorter:
    """Takes edges by :meth:`add` and gives their sorted entries by :meth:`merge`.

    Args:
        folder: folder for the runs; the caller removes it.
        capacity: entries (two an edge) that may be in memory at once.
    """

    def __init__(self, folder: Path, capacity: int, weighted: bool) -> None:
        self.folder, self.weighted = folder, weighted
        self.share = max(
            1, min(_LARGEST_RUN[weighted], capacity // (_THREADS + 1))
        )  # one is filled, the others are sorted
        self.step = max(1, min(4096, self.share // 32))
        self.rows_read = self.self_loops = 0
        self._runs: list[_Run] = []
        self._spare: list[_Buffer] = []
        self._filling, self._filled = self._buffer(self.share), 0
        self._pool = ThreadPoolExecutor(_THREADS)
        self._sorting: deque[tuple[Future[_Run], _Buffer]] = deque()

    def _buffer(self, size: int) -> _Buffer:
        """A buffer, if possible one that was used before: new memory of the system costs as much time as sorting it."""
        if self._spare:
            return self._spare.pop()
        return np.empty(size, np.uint64), np.empty(size, np.float32) if self.weighted else None

    def add(self, batch: EdgeBatch) -> None:
        """Take both directions of these edges; self-loops are dropped."""
        source, target, weights = batch.source, batch.target, batch.weights
        keep = source != target
        kept = int(np.count_nonzero(keep))
        self.rows_read += len(source)
        self.self_loops += len(source) - kept
        if kept < len(source):
            source, target, weights = source[keep], target[keep], None if weights is None else weights[keep]
        source, target = source.astype(np.uint64), target.astype(np.uint64)
        self._take(source, target, weights)
        self._take(target, source, weights)

    def _take(self, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray | None) -> None:
        start = 0
        while start < len(rows):
            count = min(len(rows) - start, self.share - self._filled)
            into, part = slice(self._filled, self._filled + count), slice(start, start + count)
            keys = self._filling[0][into]
            np.left_shift(rows[part], np.uint64(32), out=keys)
            np.bitwise_or(keys, columns[part], out=keys)
            if self._filling[1] is not None and weights is not None:
                self._filling[1][into] = weights[part]
            self._filled, start = self._filled + count, start + count
            if self._filled == self.share:
                self._flush()
                self._filling, self._filled = self._buffer(self.share), 0

    def _flush(self) -> None:
        if len(self._sorting) >= _THREADS:
            self._collect()
        path = self.folder / f"run{len(self._runs) + len(self._sorting)}.keys"
        keys, weights = self._filling
        part = slice(0, self._filled)
        run = self._pool.submit(_write_run, keys[part], None if weights is None else weights[part], path, self.step)
        self._sorting.append((run, self._filling))

    def _collect(self) -> None:
        run, buffer = self._sorting.popleft()
        self._runs.append(run.result())
        self._spare.append(buffer)

    def merge(self) -> Iterator[Entries]:
        """All entries in ascending order, range by range; a range is valid until the next one. To be called once."""
        if self._filled:
            self._flush()
        self._filling = (np.empty(0, np.uint64), None)
        while self._sorting:
            self._collect()
        self._spare.clear()
        if not self._runs:
            return
        bounds = self._bounds()
        largest = int((bounds[1:] - bounds[:-1]).sum(axis=1).max())
        ahead: deque[tuple[Future[Entries], _Buffer]] = deque()
        for i in range(1, len(bounds) + _THREADS):
            if i < len(bounds):
                buffer = self._buffer(largest)
                ahead.append((self._pool.submit(self._load, bounds[i - 1], bounds[i], buffer), buffer))
            if ahead and i >= _THREADS:
                loaded, buffer = ahead.popleft()
                yield loaded.result()
                self._spare.append(buffer)

    @property
    def num_entries(self) -> int:
        """Entries in all runs, an upper bound on what :meth:`merge` gives."""
        return sum(run.length for run in self._runs)

    def _bounds(self) -> np.ndarray:
        """The start of each range in each run, and the end of the last range: (ranges + 1, runs)."""
        samples = np.sort(np.concatenate([run.samples for run in self._runs]))
        # Between two samples of a run lie at most `step` keys, so a range exceeds its samples by one step a run.
        spare = len(self._runs)
        per_range = max(1, min(self.share, max(_LARGEST_RANGE, 4 * spare * self.step)) // self.step - spare)
        cuts = [[run.position(key) for run in self._runs] for key in np.unique(samples[per_range::per_range])]
        return np.array([[0] * spare, *cuts, [run.length for run in self._runs]], np.int64)

    def _load(self, start: np.ndarray, stop: np.ndarray, buffer: _Buffer) -> Entries:
        ends = np.cumsum(stop - start)
        keys, weights = buffer[0][: ends[-1]], None if buffer[1] is None else buffer[1][: ends[-1]]
        for run, first, last, end in zip(self._runs, start.tolist(), stop.tolist(), ends.tolist(), strict=True):
            for at in range(first, last, _CHUNK):
                until = min(last, at + _CHUNK)
                into = slice(end - last + at, end - last + until)
                keys[into] = run.keys(at, until)
                if weights is not None:
                    weights[into] = run.weights(at, until)
        return _sorted(keys, weights)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _write_run(keys: np.ndarray, weights: np.ndarray | None, path: Path, step: int) -> _Run:
    entries = _sorted(keys, weights)
    with path.open("wb") as file:
        file.write(entries.keys.data)
    if entries.weights is not None:
        with path.with_suffix(".weights").open("wb") as file:
            file.write(entries.weights.data)
    return _Run(path, len(entries.keys), entries.keys[::step].copy(), step)


def _sorted(keys: np.ndarray, weights: np.ndarray | None) -> Entries:
    """Sort, and keep the largest weight of each key; in place where there are no weights."""
    if weights is None:
        keys.sort()
        return Entries(keys[: _drop_repeats(keys)], None)
    order = np.argsort(keys)
    keys, weights = keys[order], weights[order]
    del order
    if len(keys) == 0:
        return Entries(keys, weights)
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    if first.all():
        return Entries(keys, weights)
    starts = np.flatnonzero(first)
    return Entries(keys[starts], np.maximum.reduceat(weights, starts))


def _drop_repeats(keys: np.ndarray) -> int:
    """Move the distinct keys of sorted keys to the front, piece by piece; returns their number."""
    written, previous = 0, None
    for start in range(0, len(keys), _CHUNK):
        part = keys[start : start + _CHUNK]
        fresh = np.ones(len(part), bool)
        np.not_equal(part[1:], part[:-1], out=fresh[1:])
        fresh[0] = previous is None or part[0] != previous
        previous = part[-1]
        distinct = part[fresh]
        keys[written : written + len(distinct)] = distinct
        written += len(distinct)
    return written
