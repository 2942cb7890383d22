"""Writes a token directory block of columns by block of columns, so that a kill at any moment loses one block at most.

Unfinished tokens lie in ``.NAME.partial`` beside the directory that they become. A finished block is a file of its own,
(K+1, n, w), on the disk before ``progress.json`` names it. When all columns are there, rows are put together into
``tokens.npy``, then ``manifest.json`` is written, then the directory gets its name.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.bases.optimal import Recurrence
from polyformer.errors import FileCorrupt, OutOfResources, OutputBusy, OutputExists
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
from polyformer.propagation.engine import Assembly, TokenBlock, TokenSink, join_recurrences, whole
from polyformer.stores.blocks import RowAssembly, TokenShape, file_digest, write_block

__all__ = ["TokenDirectoryWriter", "nodes_of_job", "unfinished_tokens"]

_PROGRESS, _MANIFEST, _LOCK, _NODES = "progress.json", "manifest.json", "lock", "nodes.npy"
_ONLY_FINISHED = {"complete", "samples"}
_ARRAYS = ("tokens.npy", _NODES, "recurrence.npz")
_FINAL = {*_ARRAYS, _MANIFEST, _LOCK}


def unfinished_tokens(directory: Path) -> Path:
    """Where tokens lie until they are whole and become ``directory``."""
    return directory.parent / f".{directory.name}.partial"


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
        self.folder = unfinished_tokens(directory)
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
        self._blocks = {b["start"]: b for b in blocks if file_digest(self.folder / b["file"]) == b["digest"]}
        if not self.assembled:
            kept = {_LOCK, _NODES} | {block["file"] for block in self._blocks.values()}
            for path in self.folder.iterdir():
                if path.name not in kept:
                    path.unlink(missing_ok=True)  # a task of a job that was stopped may be about to rename it
            self._write_nodes()
            self._write_progress()

    def _write_nodes(self) -> None:
        """Have the rows asked for at hand for other processes; those of this job are left as they are."""
        path = self.folder / _NODES
        try:
            found = array_digest(np.load(path, allow_pickle=False))
        except (OSError, ValueError, EOFError):
            found = None
        if self.nodes is None:
            path.unlink(missing_ok=True)
        elif found != self.about["nodes"]:
            with write_whole(path) as file:
                np.save(file, self.nodes)

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
        with write_block(self.folder, columns, self.shape) as block:
            yield block
        self.register(block.entry)

    def register(self, entry: dict[str, Any]) -> None:
        """Count a block that is on the disk, as its writer tells of it, as received."""
        self._blocks[entry["start"]] = entry
        self._write_progress()

    def finish(self, assemble: Callable[[Assembly], None] = whole) -> None:
        """Put the rows together and give the directory its name.

        Args:
            assemble: writes all of what it is given; by default at one go.
        """
        assert not self.missing()
        if not self.assembled:
            blocks = (self._blocks[start] for start in sorted(self._blocks))
            names = tuple((block["start"], block["stop"], block["file"]) for block in blocks)
            rows = RowAssembly(self.folder, self.shape, names)
            rows.create()
            assemble(rows)
            recurrence = self._recurrence()
            if recurrence is not None:
                write_npz(self.folder / "recurrence.npz", vars(recurrence))
            samples = file_samples(self.folder, _ARRAYS)
            write_json(self.folder / _MANIFEST, self.about | {"complete": True, "samples": samples})
            sync_directory(self.folder)
        for path in self.folder.iterdir():
            if path.name not in _FINAL:  # blocks, their list, and what a killed process was about to rename
                path.unlink(missing_ok=True)
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


def nodes_of_job(folder: Path, about: dict[str, Any]) -> np.ndarray | None:
    """The rows asked for, None for all, by the job whose unfinished tokens are there; any other job is refused.

    For a process that makes some of the blocks and does not hold the place.
    """
    found = read_json(folder / _PROGRESS, "a directory of unfinished tokens").get("job")
    if found != about:
        raise OutputExists(f"'{folder}' now holds unfinished tokens of another job. Choose another place for one.")
    return None if about["nodes"] is None else np.load(folder / _NODES, mmap_mode="r", allow_pickle=False)
