"""Writes a token directory block of columns by block of columns, so that a kill at any moment loses one block at most.

Unfinished tokens lie in ``.NAME.partial`` beside the directory that they become. A finished block is a file of its own,
(K+1, n, w), on the disk before ``progress.json`` names it. When all columns are there, rows are put together into
``tokens.npy``, then ``manifest.json`` is written, then the directory gets its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from polyformer.bases.optimal import Recurrence
from polyformer.errors import FileCorrupt, InvalidData, InvalidParameter, OutOfResources, OutputBusy, OutputExists
from polyformer.files import (
    array_digest,
    file_samples,
    read_json,
    reporting_io_errors,
    sync_directory,
    try_lock,
    write_json,
    write_npz,
    write_whole,
)
from polyformer.machine import format_bytes
from polyformer.propagation.engine import TokenBlock, TokenSink, join_recurrences

__all__ = ["TOKEN_DTYPES", "TokenDirectoryWriter", "TokenShape"]

TOKEN_DTYPES = ("float32", "float16")
_PROGRESS, _MANIFEST, _LOCK = "progress.json", "manifest.json", "lock"
_ONLY_FINISHED = {"complete", "samples"}
_ARRAYS = ("tokens.npy", "nodes.npy", "recurrence.npz")
_FINAL = {*_ARRAYS, _MANIFEST, _LOCK}
_PIECE_BYTES = 1 << 25


@dataclass(frozen=True)
class TokenShape:
    """(n, K+1, d) tokens of a dtype."""

    num_rows: int
    order: int
    num_features: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in TOKEN_DTYPES:
            raise InvalidParameter(f"'dtype' of tokens must be {' or '.join(TOKEN_DTYPES)}. Got '{self.dtype}'.")

    @property
    def bytes(self) -> int:
        """What the tokens occupy."""
        return self.num_rows * (self.order + 1) * self.num_features * np.dtype(self.dtype).itemsize


class TokenDirectoryWriter(TokenSink):
    """Receives tokens of one job; the same job started again goes on where it was stopped.

    Args:
        directory: what the tokens become.
        about: the manifest of the finished tokens; a job with another one is another job.
        nodes: the rows asked for, if not all.
    """

    def __init__(
        self, directory: Path, shape: TokenShape, about: dict[str, Any], nodes: np.ndarray | None = None
    ) -> None:
        self.directory, self.shape, self.nodes = directory, shape, nodes
        self.folder = directory.parent / f".{directory.name}.partial"
        self.about = about | {"nodes": None if nodes is None else array_digest(nodes)}
        self._blocks: dict[int, dict[str, Any]] = {}

    @contextlib.contextmanager
    def open(self) -> Iterator[TokenDirectoryWriter]:
        """Hold the place for this process and take up what is there; writing errors become one sentence each.

        If not one block gets finished, nothing is left behind.
        """
        self._refuse_existing()
        with reporting_io_errors("tokens", self.directory):
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / _LOCK).open("wb") as lock:
                if not try_lock(lock):
                    raise OutputBusy(
                        f"Another process is writing tokens to '{self.directory}'. "
                        f"Wait for it, or choose another place."
                    )
                try:
                    self._refuse_existing()
                    self._take_up()
                    self._check_disk()
                    yield self
                except BaseException:
                    if not self.assembled and not any(self.folder.glob("block-*")):
                        shutil.rmtree(self.folder, ignore_errors=True)
                    raise

    def _refuse_existing(self) -> None:
        if self.directory.exists() and (not self.directory.is_dir() or any(self.directory.iterdir())):
            raise OutputExists(f"'{self.directory}' already exists. Choose another place or remove it first.")

    def _take_up(self) -> None:
        """Go on with the finished blocks of the same job, and remove what else a killed process left."""
        job, blocks = self._found()
        if blocks or self.assembled:
            self._refuse_another_job(job)
        self._blocks = {b["start"]: b for b in blocks if _digest(self.folder / b["file"]) == b["digest"]}
        if not self.assembled:
            kept = {_LOCK} | {block["file"] for block in self._blocks.values()}
            for path in self.folder.iterdir():
                if path.name not in kept:
                    path.unlink()
            self._write_progress()

    def _found(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The job whose tokens are here, and its blocks that are still to be put together."""
        try:
            if self.assembled:
                manifest = read_json(self.folder / _MANIFEST, "a token directory")
                return {key: manifest[key] for key in manifest if key not in _ONLY_FINISHED}, []
            if (self.folder / _PROGRESS).exists():
                found = read_json(self.folder / _PROGRESS, "a directory of unfinished tokens")
                return found["job"], found["blocks"]
        except (KeyError, TypeError):
            raise FileCorrupt(f"'{self.folder}' holds no unfinished tokens of this version. Remove it.") from None
        return self.about, []

    def _refuse_another_job(self, job: dict[str, Any]) -> None:
        for key in sorted(self.about.keys() | job.keys()):
            if job.get(key) != self.about.get(key):
                raise OutputExists(
                    f"'{self.folder}' holds unfinished tokens of another job: its {key} is {job.get(key)!r}, "
                    f"not {self.about.get(key)!r}. Finish that one, remove it, or choose another place."
                )

    def _write_progress(self) -> None:
        write_json(self.folder / _PROGRESS, {"job": self.about, "blocks": list(self._blocks.values())})

    def _check_disk(self) -> None:
        """Refuse what cannot fit: the blocks that are missing, and the rows put together."""
        if self.assembled:
            return
        share = sum(part.stop - part.start for part in self.missing()) / self.shape.num_features
        needed, free = int((1 + share) * self.shape.bytes), shutil.disk_usage(self.folder).free
        if needed > free:
            raise OutOfResources(
                f"These tokens need {format_bytes(needed)} of disk at '{self.directory.parent}' until they are put "
                f"together. Got {format_bytes(free)}. Free some, choose fewer nodes or another disk."
            )

    @property
    def assembled(self) -> bool:
        """Whether a process was killed after the tokens were whole and before they got their name."""
        return (self.folder / _MANIFEST).exists()

    def missing(self) -> list[slice]:
        if self.assembled:
            return []
        gaps, at = [], 0
        for start in sorted(self._blocks):
            if start > at:
                gaps.append(slice(at, start))
            at = self._blocks[start]["stop"]
        return [*gaps, slice(at, self.shape.num_features)] if at < self.shape.num_features else gaps

    @contextlib.contextmanager
    def block(self, columns: slice) -> Iterator[TokenBlock]:
        name = f"block-{columns.start:06d}-{columns.stop:06d}"
        path = self.folder / name
        try:
            with path.open("wb") as file:
                block = _FileBlock(file, columns, self.shape)
                yield block
                block.check()
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)  # a full disk needs the room
            raise
        sync_directory(self.folder)
        about = {"start": columns.start, "stop": columns.stop, "file": name, "digest": block.digest.hexdigest()}
        if block.recurrence is not None:
            about["recurrence"] = {key: value.tolist() for key, value in vars(block.recurrence).items()}
        self._blocks[columns.start] = about
        self._write_progress()

    def finish(self) -> None:
        """Put the rows together and give the directory its name."""
        assert not self.missing()
        if not self.assembled:
            self._assemble()
            if self.nodes is not None:
                with write_whole(self.folder / "nodes.npy") as file:
                    np.save(file, self.nodes)
            recurrence = self._recurrence()
            if recurrence is not None:
                write_npz(self.folder / "recurrence.npz", vars(recurrence))
            samples = file_samples(self.folder, _ARRAYS)
            write_json(self.folder / _MANIFEST, self.about | {"complete": True, "samples": samples})
            sync_directory(self.folder)
        for path in self.folder.iterdir():
            if path.name not in _FINAL:  # blocks, their list, and what a killed process was about to rename
                path.unlink()
        if self.directory.is_dir():
            self.directory.rmdir()
        self.folder.rename(self.directory)
        sync_directory(self.directory.parent)
        (self.directory / _LOCK).unlink()

    def _recurrence(self) -> Recurrence | None:
        return join_recurrences(
            {
                start: Recurrence(*(np.array(block["recurrence"][key]) for key in ("norm", "gamma", "beta")))
                for start, block in self._blocks.items()
                if "recurrence" in block
            }
        )

    def _assemble(self) -> None:
        """Rows from the blocks' files, some at a time, into ``tokens.npy``."""
        shape, orders = self.shape, self.shape.order + 1
        dtype = np.dtype(shape.dtype)
        step = max(1, _PIECE_BYTES // max(1, orders * shape.num_features * dtype.itemsize))
        with contextlib.ExitStack() as stack:
            out = stack.enter_context((self.folder / "tokens.npy").open("wb"))
            header = {"descr": dtype.str, "fortran_order": False, "shape": (shape.num_rows, orders, shape.num_features)}
            np.lib.format.write_array_header_1_0(out, header)
            os.posix_fallocate(out.fileno(), 0, max(1, out.tell() + shape.bytes))  # a full disk is an error here
            files = {
                start: stack.enter_context((self.folder / block["file"]).open("rb", buffering=0))
                for start, block in self._blocks.items()
            }
            for begin in range(0, shape.num_rows, step):
                rows = np.empty((min(step, shape.num_rows - begin), orders, shape.num_features), dtype)
                for start, file in files.items():
                    width = self._blocks[start]["stop"] - start
                    for k in range(orders):
                        file.seek((k * shape.num_rows + begin) * width * dtype.itemsize)
                        part = np.fromfile(file, dtype, len(rows) * width)
                        rows[:, k, start : start + width] = part.reshape(-1, width)
                out.write(rows.data)
            out.flush()
            os.fsync(out.fileno())


class _FileBlock(TokenBlock):
    """Order after order, row after row into a file."""

    def __init__(self, file: IO[bytes], columns: slice, shape: TokenShape) -> None:
        self.file, self.columns, self.shape = file, columns, shape
        self.digest = hashlib.blake2b(digest_size=16)
        self._rows = 0

    def view(self, order: int) -> np.ndarray | None:
        return None

    def put(self, order: int, values: np.ndarray) -> None:
        assert order == self._rows // max(1, self.shape.num_rows)
        dtype = np.dtype(self.shape.dtype)
        if dtype.itemsize < 4:
            self._check_range(order, values, float(np.finfo(dtype).max))
        data = np.ascontiguousarray(values, dtype).data
        self.digest.update(data)
        self.file.write(data)
        self._rows += len(values)

    def _check_range(self, order: int, values: np.ndarray, largest: float) -> None:
        if len(values) and not max(values.max(), -values.min()) <= largest:
            row, column = np.unravel_index(int(np.argmax(np.abs(values))), values.shape)
            raise InvalidData(
                f"A token of order {order} in column {self.columns.start + int(column)} is {values[row, column]:.6g}, "
                f"but float16 holds at most {largest:.0f}. Use --dtype float32, or scale the features down."
            )

    def check(self) -> None:
        """See that every row of every order has come."""
        assert self._rows == self.shape.num_rows * (self.shape.order + 1), (self._rows, self.shape)


def _digest(path: Path) -> str | None:
    """The hash of a block's file, None if there is none."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
