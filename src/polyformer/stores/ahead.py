"""Reading ahead: a thread reads the rows of the next batches while the model works on the present batch."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polyformer.stores.rows import TokenRows

__all__ = ["ReadAhead", "window_order"]


def window_order(count: int, chunk_rows: int, window_rows: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """The numbers 0, …, count-1 in random order, one window after the other; a window consists of long pieces on disk.

    Chunks of consecutive numbers are put into random order. The numbers of as many chunks as a window holds are then
    shuffled. The first border between chunks is random too, so that epochs cut the numbers at different places.

    >>> windows = list(window_order(10, 2, 4, np.random.default_rng(0)))
    >>> [len(window) for window in windows], sorted(np.concatenate(windows).tolist())
    ([4, 4, 2], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    shift, whole = int(random.integers(count)), count // chunk_rows
    chunks, each = random.permutation(whole), window_rows // chunk_rows
    rest = np.arange(whole * chunk_rows, count)
    for start in range(0, max(whole, 1), each):
        begin = chunks[start : start + each] * chunk_rows
        window = (begin[:, None] + np.arange(chunk_rows)).ravel()
        if start + each >= whole:  # a rest smaller than a chunk joins the last window
            window = np.concatenate([window, rest])
        yield (random.permutation(window) + shift) % count


@dataclass
class _Window:
    """Rows in the order in which they will be used, their places in the buffer, and the batches that begin in them."""

    rows: np.ndarray
    place: Tensor
    buffer: np.ndarray
    batches: list[Tensor]


class ReadAhead:
    """Gives batches, and their rows in the same order, while a thread reads the next window.

    Args:
        rows: where to read.
        buffers: two or more buffers for the rows of a window; one is filled while another is used.
        batches: pairs of a batch and its rows, in the order in which they will be used; the thread runs this iterator.
    """

    def __init__(
        self, rows: TokenRows, buffers: list[np.ndarray], batches: Iterator[tuple[Tensor, np.ndarray]]
    ) -> None:
        self._rows, self._source, self._window_rows = rows, batches, len(buffers[0])
        self._free: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
        self._filled: queue.SimpleQueue[_Window | BaseException | None] = queue.SimpleQueue()
        for buffer in buffers:
            self._free.put(buffer)
        self._window: _Window | None = None
        self._used = 0
        self._begun: deque[Tensor] = deque()
        self._ended, self._closed = False, threading.Event()
        self._thread = threading.Thread(target=self._run, name="polyformer-read-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Tensor]:
        """The batches."""
        while self._begun or self._advance():
            while self._begun:
                yield self._begun.popleft()

    def take(self, rows: np.ndarray) -> Tensor | None:
        """The tokens of the next rows in the view: (B,) -> (B, K+1, d) float32; None if other rows come next."""
        parts: list[Tensor] = []
        while len(rows):
            if (self._window is None or self._used == len(self._window.rows)) and not self._advance():
                return None
            assert self._window is not None
            piece = slice(self._used, self._used + len(rows))
            announced = self._window.rows[piece]
            if not np.array_equal(announced, rows[: len(announced)]):
                return None
            parts.append(self._rows.gather(self._window.buffer, self._window.place[piece]))
            self._used += len(announced)
            rows = rows[len(announced) :]
        return torch.cat(parts) if len(parts) > 1 else next(iter(parts), None)

    def close(self) -> None:
        """Stop reading; the buffers are free again."""
        self._closed.set()
        self._free.put(None)
        self._thread.join()

    def _advance(self) -> bool:
        """Go to the next window; False at the end. An error of the thread is raised here."""
        if self._ended:
            return False
        if self._window is not None:
            self._free.put(self._window.buffer)
            self._window = None
        window = self._filled.get()
        if isinstance(window, BaseException):
            self._ended = True
            raise window
        self._window, self._used, self._ended = window, 0, window is None
        if window is not None:
            self._begun.extend(window.batches)
        return window is not None

    def _run(self) -> None:
        try:
            for batches, rows in self._windows():
                buffer = self._free.get()
                if self._closed.is_set() or buffer is None:
                    return
                unique, place = np.unique(rows, return_inverse=True)
                self._rows.read(unique, buffer[: len(unique)])
                self._filled.put(_Window(rows, torch.from_numpy(place), buffer, batches))
            self._filled.put(None)
        except BaseException as error:  # errors of the caller's batches too: the caller is to see them
            self._filled.put(error)

    def _windows(self) -> Iterator[tuple[list[Tensor], np.ndarray]]:
        """All rows in pieces of a window, each with the batches that begin in it."""
        begun: list[Tensor] = []
        parts: list[np.ndarray] = []
        count = 0
        for batch, rows in self._source:
            begun.append(batch)
            while count + len(rows) >= self._window_rows:
                cut = self._window_rows - count
                yield begun, np.concatenate([*parts, rows[:cut]])
                begun, parts, count, rows = [], [], 0, rows[cut:]
            parts.append(rows)
            count += len(rows)
        if begun or count:
            yield begun, np.concatenate(parts)
