"""Predictions by tasks on a Ray cluster, each over a range of nodes: rows of tokens in, a file of scores out.

Unfinished predictions lie in ``.NAME.partial`` beside the file that they become: tokens, unless the user gave some, and
the scores of every finished range. The same command continues from there.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from polyformer.cluster import capacity, connected, run_tasks
from polyformer.errors import FileCorrupt, InvalidParameter
from polyformer.files import (
    array_digest,
    file_digest,
    held_partial,
    map_npy,
    read_json,
    read_npy,
    write_json,
    write_npy,
)
from polyformer.files.data_schemas import UNFINISHED_PREDICTIONS
from polyformer.graph import Graph
from polyformer.machine import num_cores
from polyformer.models import NodeModel, Workload
from polyformer.models.parts.token_model import TokenModel
from polyformer.models.walk import ROWS_PER_BLOCK
from polyformer.propagation.ray import PROCESS_BYTES, RayEngine
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.config import CONFIG
from polyformer.runs.prediction import node_scores
from polyformer.runs.run import Run
from polyformer.runs.saved_model import WEIGHTS
from polyformer.tokens import open_tokens, write_tokens

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
    run: Run,
    model: NodeModel,
    graph: Graph,
    out: Path,
    workload: Workload,
    cluster: ClusterOptions,
    reporter: Reporter = SILENT,
) -> Iterator[Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Node ids (n,) and their scores (n, C), block after block, as ``predict_blocks`` gives them.

    Args:
        run: the run of the model. The run, ``out`` and the tokens lie on storage that all nodes of the cluster see.
        out: the file that will be written. Unfinished files are removed when the context ends without an error.
        workload: which nodes, all by default; ``tokens`` are computed first if they are not given; ``memory`` is that
            of one task.
    """
    if not model.reads_tokens:
        raise InvalidParameter(
            f"'--engine ray' is for models that see the graph through its tokens. '{run.path}' reads it as a whole. "
            f"Leave --engine out."
        )
    nodes, tokens = workload.nodes, workload.tokens
    workload = replace(workload, rows_per_epoch=graph.num_nodes if nodes is None else len(nodes))
    if tokens is not None:
        model.check_tokens(graph, workload)
    with (
        connected(cluster.address, max(num_cores(), cluster.workers or 1)),
        held_partial(out.absolute(), "predictions") as folder,
    ):
        _take_up(folder, _about(run.path, graph, workload), nodes)
        if tokens is None:
            tokens = folder / "tokens"
            seen = cast(TokenModel, model).token_graph(graph, workload, reporter)
            _compute_tokens(cast(TokenModel, model), seen, workload, tokens, cluster, reporter)
        of_labels = None
        if workload.labels is not None:
            of_labels = folder / "label-tokens"
            seen = graph.with_features(workload.labels.matrix())
            _compute_tokens(cast(TokenModel, model), seen, workload, of_labels, cluster, reporter)
        limit = _TASK_BYTES if workload.memory is None else workload.memory
        count = workload.rows_per_epoch
        task = _PartTask(run.path.absolute(), tokens.absolute(), of_labels, folder, nodes is not None, count, limit)
        yield _scores(task, cluster, reporter)
        shutil.rmtree(folder)


def _about(run: Path, graph: Graph, workload: Workload) -> dict[str, Any]:
    """All that predictions depend on."""
    nodes, tokens, labels = workload.nodes, workload.tokens, workload.labels
    return {
        "model": [file_digest(run / name) for name in (CONFIG, WEIGHTS)],
        "graph": graph.fingerprint,
        "nodes": None if nodes is None else array_digest(nodes),
        "tokens": None if tokens is None else file_digest(tokens / "manifest.json"),
        "labels": None if labels is None else array_digest(labels.nodes, labels.columns),
    }


def _take_up(folder: Path, about: dict[str, Any], nodes: np.ndarray | None) -> None:
    """Keep what a process that was stopped did for the same predictions; remove what belongs to any other."""
    place = folder / "about.json"
    with contextlib.suppress(FileCorrupt):  # what another version left is removed too
        if place.exists() and read_json(place, UNFINISHED_PREDICTIONS) == about:
            return
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    if nodes is not None:
        write_npy(folder / "nodes.npy", nodes)
    write_json(place, about, UNFINISHED_PREDICTIONS)


def _compute_tokens(
    model: TokenModel, seen: Graph, workload: Workload, place: Path, cluster: ClusterOptions, reporter: Reporter
) -> None:
    """Tokens of the nodes from what the model sees as features, unless they are there already."""
    if place.exists():
        return
    nodes = workload.nodes
    engine = RayEngine(workload.memory, cluster.address, cluster.workers)
    write_tokens(seen, place, model.basis, model.order, model.settings.self_loops, nodes, engine, reporter)


@dataclass(frozen=True)
class _PartTask:
    """What all tasks of one prediction have in common."""

    run: Path
    tokens: Path
    label_tokens: Path | None
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
            return np.array(map_npy(self.folder / "nodes.npy")[begin:end])
        return np.arange(begin, end)


def _scores(task: _PartTask, cluster: ClusterOptions, reporter: Reporter) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Have all ranges that are missing predicted, then give them out in order."""
    parts = range(-(-task.num_nodes // ROWS_PER_BLOCK))
    missing = [part for part in parts if not task.path(part).exists()]
    tasks = cluster.workers or capacity()[0]
    done = len(parts) - len(missing)
    with contextlib.closing(run_tasks(partial(_predict, task), missing, at_once=tasks, memory=task.memory)) as finished:
        for _ in finished:
            done += 1
            reporter.share("predicting", done / len(parts))
    for part in parts:
        yield task.ids(part), read_npy(task.path(part))


def _predict(task: _PartTask, part: int) -> None:
    """Write the scores of a range of nodes."""
    import torch

    torch.set_num_threads(1)
    card, loaded = Run(task.run).load()
    model = cast(TokenModel, loaded)
    labels = None if task.label_tokens is None else open_tokens(task.label_tokens, model.basis, model.order)
    model.bind_stored(open_tokens(task.tokens, model.basis, model.order), task.memory - PROCESS_BYTES, labels)
    scores = node_scores(model, card.reader, task.ids(part))
    write_npy(task.path(part), scores)
