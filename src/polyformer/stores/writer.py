"""Write a token directory, one block of columns after the other, so that a kill loses one block at most.

Unfinished tokens lie in ``.NAME.partial`` beside the directory that they become. A finished block is a file of its own,
(K+1, n, w), which is on the disk before ``progress.json`` names it. When all columns are there, the writer puts rows
together into ``tokens.npy``, writes ``manifest.json`` and gives the directory its name.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.bases.optimal import Recurrence
from polyformer.errors import DataNotFound, FileCorrupt, OutputExists
from polyformer.files import (
    array_digest,
    file_digest,
    held_partial,
    map_npy,
    partial_place,
    read_json,
    read_npy,
    refuse_existing,
    require_disk,
    seal_files,
    sync_directory,
    write_json,
    write_npy,
    write_npz,
)
from polyformer.files.data_schemas import TOKEN_MANIFEST, UNFINISHED_TOKENS
from polyformer.stores.blocks import RowAssembly, TokenShape, write_block
from polyformer.stores.sinks import Assembly, TokenBlock, TokenSink, assemble_all, join_recurrences
from polyformer.system import rename_directory

__all__ = ["TokenDirectoryWriter", "nodes_of_job"]

_PROGRESS, _MANIFEST, _NODES = "progress.json", "manifest.json", "nodes.npy"
_ONLY_FINISHED = {"complete", "samples", "files"}
_ARRAYS = ("tokens.npy", _NODES, "recurrence.npz")
_FINAL = {*_ARRAYS, _MANIFEST}


class TokenDirectoryWriter(TokenSink):
    """Receives the tokens of one job; the same job, started again, goes on where it was stopped.

    Args:
        directory: the directory that the tokens become.
        about: the manifest of the finished tokens; a job with another one is another job.
        nodes: ids of the nodes whose tokens are written; None for all nodes.
    """

    def __init__(
        self, directory: Path, shape: TokenShape, about: dict[str, Any], nodes: np.ndarray | None = None
    ) -> None:
        self.directory, self.shape, self.nodes = directory, shape, nodes
        self.folder = partial_place(directory)
        self.about = about | {"nodes": None if nodes is None else array_digest(nodes)}
        self._blocks: dict[int, dict[str, Any]] = {}

    @contextlib.contextmanager
    def open(self) -> Iterator[TokenDirectoryWriter]:
        """Hold the place for this process and go on with the finished blocks; an error of writing becomes one sentence.

        If no block was finished, nothing is left behind.
        """
        refuse_existing(self.directory)
        with held_partial(self.directory, "tokens"):
            try:
                refuse_existing(self.directory)
                self._take_up()
                self._check_disk()
                yield self
            except BaseException:
                if not self.assembled and not any(self.folder.glob("block-*")):
                    shutil.rmtree(self.folder, ignore_errors=True)
                raise

    def _take_up(self) -> None:
        """Go on with the finished blocks of the same job, and remove what else a killed process left."""
        job, blocks = self._stored_job()
        if blocks or self.assembled:
            self._refuse_another_job(job)
        most = self.shape.bytes
        self._blocks = {b["start"]: b for b in blocks if file_digest(self.folder / b["file"], most) == b["digest"]}
        if not self.assembled:
            kept = {_NODES} | {block["file"] for block in self._blocks.values()}
            for path in self.folder.iterdir():
                if path.name not in kept:
                    path.unlink(missing_ok=True)  # a task of a stopped job may rename the file at this moment
            self._write_nodes()
            self._write_progress()

    def _write_nodes(self) -> None:
        """Write the node ids for other processes, unless the file of this job is there already."""
        path = self.folder / _NODES
        try:
            stored = array_digest(read_npy(path))
        except (DataNotFound, FileCorrupt):
            stored = None
        if self.nodes is None:
            path.unlink(missing_ok=True)
        elif stored != self.about["nodes"]:
            write_npy(path, self.nodes)

    def _stored_job(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The job whose unfinished tokens are in the folder, and its finished blocks."""
        try:
            if self.assembled:
                manifest = read_json(self.folder / _MANIFEST, TOKEN_MANIFEST)
                return {key: manifest[key] for key in manifest if key not in _ONLY_FINISHED}, []
            if (self.folder / _PROGRESS).exists():
                progress = read_json(self.folder / _PROGRESS, UNFINISHED_TOKENS)
                return progress["job"], progress["blocks"]
        except FileCorrupt as error:
            raise FileCorrupt(
                f"'{self.folder}' holds no unfinished tokens of this version. Remove it. ({error})"
            ) from None
        return self.about, []

    def _refuse_another_job(self, job: dict[str, Any]) -> None:
        for key in sorted(self.about.keys() | job.keys()):
            if job.get(key) != self.about.get(key):
                raise OutputExists(
                    f"'{self.folder}' holds unfinished tokens of another job: its {key} is {job.get(key)!r}, "
                    f"not {self.about.get(key)!r}. Finish that one, remove it, or choose another place."
                )

    def _write_progress(self) -> None:
        progress = {"job": self.about, "blocks": list(self._blocks.values())}
        write_json(self.folder / _PROGRESS, progress, UNFINISHED_TOKENS)

    def _check_disk(self) -> None:
        """Refuse a job whose missing blocks and final rows do not fit on the disk."""
        if self.assembled:
            return
        share = sum(part.stop - part.start for part in self.missing()) / self.shape.num_features
        needed = int((1 + share) * self.shape.bytes)
        advice = "Free some, choose fewer nodes or another disk."
        require_disk("These tokens need", needed, self.directory.parent, advice)

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
        """Count a block as received, by the entry that its writer made when it was on the disk."""
        self._blocks[entry["start"]] = entry
        self._write_progress()

    def finish(self, assemble: Callable[[Assembly], None] = assemble_all) -> None:
        """Put the rows together and give the directory its name.

        Args:
            assemble: writes all rows of what it is given; by default in this process.
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
            seals = seal_files(self.folder, _ARRAYS)
            write_json(self.folder / _MANIFEST, self.about | {"complete": True, "files": seals}, TOKEN_MANIFEST)
            sync_directory(self.folder)
        for path in self.folder.iterdir():
            if path.name not in _FINAL:  # blocks, the list of blocks, and temporary files of a killed process
                path.unlink(missing_ok=True)
        rename_directory(self.folder, self.directory)
        sync_directory(self.directory.parent)

    def _recurrence(self) -> Recurrence | None:
        return join_recurrences(
            {
                start: Recurrence(*(np.array(block["recurrence"][key]) for key in ("norm", "gamma", "beta")))
                for start, block in self._blocks.items()
                if "recurrence" in block
            }
        )


def nodes_of_job(folder: Path, about: dict[str, Any]) -> np.ndarray | None:
    """The node ids of the job ``about``, None for all nodes; refuses a folder that holds another job.

    A process that computes some of the blocks, and does not hold the place, calls this function.
    """
    job = read_json(folder / _PROGRESS, UNFINISHED_TOKENS)["job"]
    if job != about:
        raise OutputExists(f"'{folder}' now holds unfinished tokens of another job. Choose another place for one.")
    return None if about["nodes"] is None else map_npy(folder / _NODES)
