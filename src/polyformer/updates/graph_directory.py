"""A graph directory brought to a new version: whole at every moment, with a journal of what changed and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.errors import AlreadyApplied, OutputBusy
from polyformer.files import (
    array_digest,
    locked,
    reporting_io_errors,
    seal_file,
    sync_directory,
    write_json,
    write_npy,
    write_npz,
    write_sparse,
)
from polyformer.files.data_schemas import GRAPH_MANIFEST
from polyformer.graph import Graph
from polyformer.graph_files import graph_file
from polyformer.graph_journal import Journal
from polyformer.system import discard
from polyformer.tasks import Task
from polyformer.updates.task_changes import TaskChange, change_task, compact_task

__all__ = ["GraphUpdate", "compact_graph", "update_graph"]

GraphUpdate = dict[str, Any]
"""A line of the journal: version, time, source, hash, fingerprints before and after, and counts."""


def update_graph(
    directory: str | Path,
    read_change: Callable[[Task], tuple[TaskChange, str]],
    source: str = "",
    again: bool = False,
    digest: str = "",
) -> GraphUpdate:
    """Apply a change to a graph directory; readers keep the version that they opened.

    Changed arrays are written under new names, then the manifest is replaced, then the old arrays are removed: a kill
    at any moment leaves the old or the new version. One process updates a directory at a time.

    Args:
        read_change: gives the change for the task as it is now, and a hash of where the change came from.
        source: what the journal calls the change, e.g. the name of a folder.
        again: apply a change whose hash the journal knows already; by default such a change is refused.
        digest: the hash, where it is known beforehand: then a change that was applied is refused before it is read.
    """
    folder = Path(directory)
    with _held(folder):
        task = Task.load(folder)
        if digest:
            _refuse_known(task.graph, digest, source, again)
        change, digest = read_change(task)
        _refuse_known(task.graph, digest, source, again)
        changed = change_task(task, change)
        return _write(folder, task, changed, source, digest, change.counts, compacted=False)


def compact_graph(directory: str | Path) -> GraphUpdate:
    """Take the rows of removed nodes out of a graph directory; all other nodes are numbered anew and keep their ids.

    Tokens of the versions before cannot follow and have to be made again.
    """
    folder = Path(directory)
    with _held(folder):
        task = Task.load(folder)
        removed = len(task.graph.removed)
        changed = compact_task(task)
        return _write(folder, task, changed, "compact", "", {"rows taken out": removed}, compacted=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    if not folder.is_dir():
        Graph.load(folder)  # says what is missing
    busy = OutputBusy(f"Another process is updating '{folder}'. Wait for it, then run again.")
    with reporting_io_errors("a changed graph", folder), locked(folder / "update.lock", busy):
        _remove_leftovers(folder)
        yield


def _refuse_known(graph: Graph, digest: str, source: str, again: bool) -> None:
    """Refuse a change whose hash the journal of the graph has; see :func:`update_graph`."""
    assert graph.directory is not None
    if again or not digest:
        return
    for entry in Journal(graph.directory, graph.version).entries():
        if entry["hash"] == digest:
            raise AlreadyApplied(source, entry["time"], entry["version"])


def _write(
    folder: Path, task: Task, changed: Task, source: str, digest: str, counts: dict[str, int], compacted: bool
) -> GraphUpdate:
    before, graph = task.graph, changed.graph
    assert before.manifest is not None
    version = before.version + 1
    names, seals = dict(before.manifest.get("names", {})), dict(before.manifest.get("files", {}))
    kept = {graph_file(folder, before.manifest, name).name: name for name in _arrays(task)}
    for name, write in _writers(task, changed).items():
        names[name] = _numbered(name, version)
        write(folder / names[name])
        seals[names[name]] = seal_file(folder / names[name])
    used = {names.get(name, name) for name in _arrays(changed)}
    manifest = {
        **{key: value for key, value in before.manifest.items() if key not in ("samples", "removed")},
        "num_nodes": graph.num_nodes,
        "num_entries": len(graph.indices),
        "num_edges": graph.num_edges,
        "weighted": graph.weights is not None,
        "structure": graph.structure_fingerprint,
        "fingerprint": graph.fingerprint,
        "removed": len(graph.removed) > 0,
        "version": version,
        "names": {name: place for name, place in names.items() if place in used},
        "files": {place: seal for place, seal in seals.items() if place in used},
    }
    if manifest.get("task") is not None:
        names_of_classes = None if changed.class_names is None else list(changed.class_names)
        manifest["task"] = manifest["task"] | {"class_names": names_of_classes, "ids": changed.ids is not None}
    entry = _entry(task, changed, version, source, digest, counts, compacted)
    change = None if compacted else graph.history[-1]
    Journal(folder, before.version).append(entry, change)
    write_json(folder / "manifest.json", manifest, GRAPH_MANIFEST)
    sync_directory(folder)
    for place in kept:
        if place not in used:
            discard(folder / place)
    Journal(folder, version).remove_old()
    return entry


def _entry(
    task: Task, changed: Task, version: int, source: str, digest: str, counts: dict[str, int], compacted: bool
) -> GraphUpdate:
    return {
        "version": version,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "source": source,
        "hash": digest,
        "compacted": compacted,
        "before": task.graph.fingerprint,
        "structure_before": task.graph.structure_fingerprint,
        "nodes_before": task.graph.num_nodes,
        "after": changed.graph.fingerprint,
        "counts": counts,
    }


def _arrays(task: Task) -> dict[str, Any]:
    """The files of a graph directory by their first names, and what they hold."""
    graph = task.graph
    arrays: dict[str, Any] = {"indptr.npy": graph.indptr, "indices.npy": graph.indices}
    if graph.weights is not None:
        arrays["weights.npy"] = graph.weights
    if graph.features is not None:
        arrays["features.npy" if isinstance(graph.features, np.ndarray) else "features.npz"] = graph.features
    if len(graph.removed):
        arrays["removed.npy"] = graph.removed
    if graph.manifest is None or graph.manifest.get("task") is not None:
        arrays |= {"labels.npy": task.labels, "splits.npz": task.splits}
        if task.ids is not None:
            arrays["ids.npy"] = task.ids
    return arrays


def _writers(task: Task, changed: Task) -> dict[str, Callable[[Path], None]]:
    """How each file whose content is another than before is written."""
    before, after = _arrays(task), _arrays(changed)
    if "labels.npy" not in before:
        after = {name: value for name, value in after.items() if name not in ("labels.npy", "splits.npz", "ids.npy")}
    writers: dict[str, Callable[[Path], None]] = {}
    for name, value in after.items():
        if value is before.get(name):
            continue
        if name == "splits.npz":
            arrays = {f"{part}_{i}": getattr(s, part) for i, s in enumerate(value) for part in ("train", "val", "test")}
            if array_digest(*arrays.values()) != array_digest(
                *(getattr(s, part) for s in task.splits for part in ("train", "val", "test"))
            ):
                writers[name] = lambda path, arrays=arrays: write_npz(path, arrays)  # type: ignore[misc]
        elif name == "features.npz":
            writers[name] = lambda path, matrix=value: write_sparse(path, matrix)  # type: ignore[misc]
        elif before.get(name) is None or not np.array_equal(value, before[name], equal_nan=value.dtype.kind == "f"):
            writers[name] = lambda path, array=value: write_npy(path, array)  # type: ignore[misc]
    return writers


def _numbered(name: str, version: int) -> str:
    stem, _, ending = name.rpartition(".")
    return f"{stem}-{version}.{ending}"


def _remove_leftovers(folder: Path) -> None:
    """Remove files of an update that was killed, and those that one removed before it was killed."""
    graph = Graph.load(folder)
    assert graph.manifest is not None
    version = graph.version
    named = set(graph.manifest.get("files", {})) | set(graph.manifest.get("names", {}).values())
    for pattern in ("*-*.npy", "*-*.npz", ".*.npy.*", ".*.npz.*", ".manifest.json.*"):
        for path in folder.glob(pattern):
            if path.name not in named and not path.name.startswith("change-"):
                discard(path)
    Journal(folder, version).remove_old()
