"""Predictions by tasks on a Ray cluster, each over a range of nodes: rows of tokens in, a file of scores out.

Unfinished predictions lie in ``.NAME.partial`` beside the file that they become: tokens, if they were computed for it,
and the scores of every range that is done. The same command goes on with them.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.cluster import capacity, connected, run_tasks
from polyformer.errors import InvalidParameter, OutputBusy
from polyformer.files import array_digest, read_json, reporting_io_errors, try_lock, write_json, write_whole
from polyformer.graph import Graph
from polyformer.machine import num_cores
from polyformer.models import NodeModel, Workload
from polyformer.models.token_model import TokenModel
from polyformer.prediction import ROWS_PER_BLOCK, Resources, node_scores
from polyformer.propagation.ray import PROCESS_BYTES, RayEngine
from polyformer.stores.blocks import file_digest
from polyformer.tokens import open_tokens, write_tokens
from polyformer.training.saved_model import CONFIG, WEIGHTS, load_model

__all__ = ["ClusterOptions", "predict_shards"]

_TASK_BYTES = PROCESS_BYTES + (512 << 20)


@dataclass(frozen=True)
class ClusterOptions:
    """Where tasks run.

    Attributes:
        address: ``auto`` or ``HOST:PORT`` of a Ray cluster; by default one is started on this machine.
        workers: tasks at a time; one for each CPU by default.
    """

    address: str | None = None
    workers: int | None = None


@contextlib.contextmanager
def predict_shards(
    run: Path,
    model: NodeModel,
    graph: Graph,
    nodes: np.ndarray | None,
    out: Path,
    resources: Resources,
    cluster: ClusterOptions,
) -> Iterator[Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Node ids (n,) and their scores (n, C), block after block, as :func:`polyformer.prediction.predict_blocks` gives.

    Args:
        run: of the model; on storage that all nodes of the cluster see, as ``out`` and the tokens.
        nodes: of which; all by default.
        out: the file that will be written; what is unfinished goes when the context ends without an error.
        resources: ``tokens`` is computed first if it is not given; ``memory`` is that of one task.
    """
    if not isinstance(model, TokenModel):
        raise InvalidParameter(
            f"'--engine ray' is for models that see the graph through its tokens. '{run}' reads it as a whole. "
            f"Leave --engine out."
        )
    folder = out.absolute().parent / f".{out.name}.partial"
    tokens, count = resources.tokens, graph.num_nodes if nodes is None else len(nodes)
    if tokens is not None:
        model.check_tokens(graph, Workload(nodes, count, tokens=tokens))
    with connected(cluster.address, max(num_cores(), cluster.workers or 1)), _held(folder, out):
        _take_up(folder, _about(run, graph, nodes, tokens), nodes)
        if tokens is None:
            tokens = folder / "tokens"
            _compute_tokens(model, graph, nodes, tokens, resources, cluster)
        limit = _TASK_BYTES if resources.memory is None else resources.memory
        task = _PartTask(run.absolute(), tokens.absolute(), folder, nodes is not None, count, limit)
        yield _scores(task, resources, cluster)
        shutil.rmtree(folder)


@contextlib.contextmanager
def _held(folder: Path, out: Path) -> Iterator[None]:
    """Hold the place of unfinished predictions for this process."""
    with reporting_io_errors("predictions", out):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("wb") as lock:
            if not try_lock(lock):
                raise OutputBusy(f"Another process is writing predictions to '{out}'. Wait for it, or choose another.")
            yield


def _about(run: Path, graph: Graph, nodes: np.ndarray | None, tokens: Path | None) -> dict[str, Any]:
    """All that predictions depend on."""
    return {
        "model": [file_digest(run / name) for name in (CONFIG, WEIGHTS)],
        "graph": graph.fingerprint,
        "nodes": None if nodes is None else array_digest(nodes),
        "tokens": None if tokens is None else open_tokens(tokens).manifest["samples"],
    }


def _take_up(folder: Path, about: dict[str, Any], nodes: np.ndarray | None) -> None:
    """Keep what a process that was stopped did for the same predictions; remove what belongs to any other."""
    place = folder / "about.json"
    if place.exists() and read_json(place, "a directory of unfinished predictions") == about:
        return
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()
    if nodes is not None:
        with write_whole(folder / "nodes.npy") as file:
            np.save(file, nodes)
    write_json(place, about)


def _compute_tokens(
    model: TokenModel,
    graph: Graph,
    nodes: np.ndarray | None,
    place: Path,
    resources: Resources,
    cluster: ClusterOptions,
) -> None:
    """Tokens of the nodes, unless they are there already."""
    if place.exists():
        return
    count = graph.num_nodes if nodes is None else len(nodes)
    seen = model.token_graph(graph, Workload(nodes, count, memory=resources.memory, report=resources.report))
    engine = RayEngine(resources.memory, cluster.address, cluster.workers)
    loops = model.settings.self_loops
    write_tokens(seen, place, model.basis, model.order, loops, nodes, engine, resources.progress)


@dataclass(frozen=True)
class _PartTask:
    """What all tasks of one prediction have in common."""

    run: Path
    tokens: Path
    folder: Path
    subset: bool
    num_nodes: int
    memory: int

    def path(self, part: int) -> Path:
        return self.folder / f"part-{part:08d}.npy"

    def ids(self, part: int) -> np.ndarray:
        """Nodes of a range."""
        begin, end = part * ROWS_PER_BLOCK, min((part + 1) * ROWS_PER_BLOCK, self.num_nodes)
        if self.subset:
            return np.array(np.load(self.folder / "nodes.npy", mmap_mode="r", allow_pickle=False)[begin:end])
        return np.arange(begin, end)


def _scores(task: _PartTask, resources: Resources, cluster: ClusterOptions) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Have all ranges that are missing predicted, then give them out in order."""
    parts = range(-(-task.num_nodes // ROWS_PER_BLOCK))
    missing = [part for part in parts if not task.path(part).exists()]
    tasks = cluster.workers or capacity()[0]
    done = len(parts) - len(missing)
    with contextlib.closing(run_tasks(partial(_predict, task), missing, at_once=tasks, memory=task.memory)) as finished:
        for _ in finished:
            done += 1
            if resources.walked is not None:
                resources.walked(done / len(parts))
    for part in parts:
        yield task.ids(part), np.load(task.path(part), allow_pickle=False)


def _predict(task: _PartTask, part: int) -> None:
    """Write the scores of a range of nodes."""
    import torch

    torch.set_num_threads(1)
    card, model = load_model(task.run)
    assert isinstance(model, TokenModel)
    model.bind_stored(open_tokens(task.tokens, model.basis, model.order), task.memory - PROCESS_BYTES)
    scores = node_scores(model, card.reader, task.ids(part))
    with write_whole(task.path(part)) as file:
        np.save(file, scores)
