"""The engine for several machines: a Ray task computes a block of columns, then tasks put the rows together.

A task runs :class:`~polyformer.propagation.disk.DiskEngine` on its columns and needs no data from other tasks: it reads
the graph directory and writes its block, both on storage that all nodes share. Only the name of a block and its hash go
through Ray; the files hold everything else.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.cluster import Node, connected, cpus_per_task, nodes, run_tasks
from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter, OutOfResources
from polyformer.feature_scaling import FeatureScaling, ScaledFeatures
from polyformer.graph import Graph
from polyformer.graph_checks import Features
from polyformer.machine import format_bytes, num_cores
from polyformer.operators import Operator
from polyformer.propagation.disk import DiskEngine, seconds_of_reading
from polyformer.propagation.engine import Engine, EngineCost, TokenJob
from polyformer.propagation.estimates import seconds_of_hops
from polyformer.propagation.kernel import KERNEL_WIDTHS
from polyformer.propagation.recurrences import blocks_of
from polyformer.stores.blocks import BlockSink, TokenShape
from polyformer.stores.sinks import Assembly
from polyformer.stores.writer import TokenDirectoryWriter, nodes_of_job

__all__ = ["PROCESS_BYTES", "Layout", "RayEngine"]

PROCESS_BYTES = 512 << 20
"""Bytes of a Ray process before its task begins: Python, torch and this package."""

_ROW_BYTES = 128 << 20
_PART_BYTES = 1 << 30


@dataclass(frozen=True)
class Layout:
    """How a job is spread over a cluster.

    Attributes:
        width: columns of a block.
        limit: bytes that the engine of a task may use.
        memory: bytes that a task takes, its process included, by which Ray places it.
        cpus: CPUs of a task, one thread on each.
        tasks: tasks that run at a time.
        rounds: how often that many tasks run until all blocks are done.
    """

    width: int
    limit: int
    memory: int
    cpus: int
    tasks: int
    rounds: int


class RayEngine(Engine):
    """Computes tokens by tasks on a Ray cluster, into a token directory on shared storage.

    Args:
        memory: bytes that one task may use, its process included; by default what Ray reports for a node, divided
            among the tasks that run on it at a time.
        address: ``auto`` or ``HOST:PORT`` of a Ray cluster; by default one is started on this machine.
        workers: tasks at a time; one for each node by default, with all its CPUs as threads.
    """

    def __init__(self, memory: int | None = None, address: str | None = None, workers: int | None = None) -> None:
        super().__init__(memory)
        self.address, self.workers = address, workers

    def session(self) -> AbstractContextManager[Any]:
        return connected(self.address, max(num_cores(), self.workers or 1))

    def cost(self, operator: Operator, order: int, features: Features, fixed: bool) -> EngineCost:
        layout = self.layout(operator, order, features, fixed, [slice(0, features.shape[1])])
        hops = seconds_of_hops(operator.graph, order, layout.width, fixed, layout.cpus)
        reading = seconds_of_reading(operator, order, features)
        return EngineCost(layout.memory, layout.rounds * max(hops, reading), layout.tasks)

    def layout(
        self, operator: Operator, order: int, features: Features, fixed: bool, missing: Sequence[slice]
    ) -> Layout:
        """Cut a job into blocks as wide as memory allows, unless narrower blocks keep more tasks busy."""
        machines = nodes()
        tasks = self.workers or len(machines)
        cpus = max(1, cpus_per_task(tasks, machines))
        columns = sum(part.stop - part.start for part in missing)

        def widest(limit: int) -> int:
            return DiskEngine(limit).plan(operator, order, features, fixed, columns).width

        def rounds(width: int) -> int:
            return -(-sum(1 for _ in blocks_of(missing, width)) // tasks)

        reading = seconds_of_reading(operator, order, features)

        def seconds(width: int) -> float:
            return rounds(width) * (seconds_of_hops(operator.graph, order, width, fixed, cpus) + reading)

        base_bytes = PROCESS_BYTES + _held_bytes(features)
        limit, most = self._limit(machines, cpus, base_bytes, widest)
        width = min((width for width in KERNEL_WIDTHS if width <= most), key=seconds)  # the widest of equals
        plan = DiskEngine(limit).plan(operator, order, features, fixed, min(width, columns))
        return Layout(width, limit, plan.memory + base_bytes, cpus, tasks, rounds(width))

    def _limit(
        self, machines: Sequence[Node], cpus: int, base_bytes: int, widest: Callable[[int], int]
    ) -> tuple[int, int]:
        """Bytes for the engine of a task, besides ``held``, and the widest block that fits into them."""
        fitting = [node for node in machines if node.cpus >= cpus]

        def capped(share: int) -> int:
            return max(0, (share if self.memory is None else min(share, self.memory)) - base_bytes)

        limit = capped(min(node.memory // (node.cpus // cpus) for node in fitting))
        try:
            return limit, widest(limit)
        except OutOfResources:
            most = max(node.memory for node in fitting)
        try:
            return capped(most), widest(capped(most))  # then Ray runs fewer tasks on a node
        except OutOfResources as error:
            raise OutOfResources(
                f"{error} A node of the Ray cluster offers {format_bytes(most)}, of which a process takes "
                f"{format_bytes(base_bytes)} to begin with."
            ) from None

    def chebyshev(self, job: TokenJob) -> None:
        self._run(job, fixed=True)

    def optimal(self, job: TokenJob) -> None:
        self._run(job, fixed=False)

    def _run(self, job: TokenJob, fixed: bool) -> None:
        writer, graph = job.out, job.operator.graph
        if not isinstance(writer, TokenDirectoryWriter):
            raise InvalidParameter("The engine 'ray' writes token directories alone. Use write_tokens.")
        missing, columns = writer.missing(), job.features.shape[1]
        done = columns - sum(part.stop - part.start for part in missing)
        job.tell(done / columns)
        layout = self.layout(job.operator, job.order, job.features, fixed, missing)
        with _shared_graph(graph, writer.directory) as place:
            work = partial(
                _make_block,
                _ColumnTask(place, writer.folder.absolute(), writer.shape, writer.about, layout.limit, layout.cpus),
            )
            blocks = [(block.start, block.stop) for block, _ in blocks_of(missing, layout.width)]
            tasks = run_tasks(work, blocks, at_once=layout.tasks, cpus=layout.cpus, memory=layout.memory)
            with contextlib.closing(tasks) as finished:
                for (start, stop), entries in finished:
                    for entry in entries:
                        writer.register(entry)
                    done += stop - start
                    job.tell(done / columns)

    def assemble(self, rows: Assembly) -> None:
        tasks = self.workers or len(nodes())
        parts = rows.parts(min(rows.size // tasks, _PART_BYTES))
        work = run_tasks(partial(_put_together, rows), parts, at_once=tasks, memory=PROCESS_BYTES + _ROW_BYTES)
        with contextlib.closing(work) as finished:
            for _ in finished:
                pass


def _held_bytes(features: Features) -> int:
    """Bytes of the features in memory: all sparse features, no dense ones, as those are read from their file."""
    return (
        0 if isinstance(features, np.ndarray | ScaledFeatures) else int(features.data.nbytes + features.indices.nbytes)
    )


@contextlib.contextmanager
def _shared_graph(graph: Graph, output: Path) -> Iterator[Path]:
    """The directory of a graph; a graph that was not opened from a directory is saved beside the output meanwhile."""
    if graph.directory is not None:
        yield graph.directory
        return
    place = output.absolute().parent / f".{output.name}.graph"
    shutil.rmtree(place, ignore_errors=True)  # left by a process that was killed
    try:
        graph.unscaled.save(place)  # the tasks scale for themselves
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@dataclass(frozen=True)
class _ColumnTask:
    """What is the same for all tasks of a job."""

    graph: Path
    folder: Path
    shape: TokenShape
    about: dict[str, Any]
    memory: int
    threads: int


def _make_block(task: _ColumnTask, columns: tuple[int, int]) -> list[dict[str, Any]]:
    """Compute the tokens of some columns into files, on any node; returns the entries for ``progress.json``."""
    import torch

    torch.set_num_threads(task.threads)
    try:
        nodes = nodes_of_job(task.folder, task.about)
        graph = Graph.load(task.graph).scaled(FeatureScaling.from_json(task.about.get("scaling")))
    except DataNotFound as error:
        raise DataNotFound(
            f"{error} This is so on the node {socket.gethostname()}: keep graph and output on storage that all nodes "
            f"of the cluster see at the same path."
        ) from None
    if graph.fingerprint != task.about["graph"] or graph.features is None:
        raise FileCorrupt(f"'{task.graph}' is not the graph that this job began with. Restore it, or begin anew.")
    sink = BlockSink(task.folder, task.shape, slice(*columns))
    operator = Operator(graph, task.about["operator"]["self_loops"])
    job, engine = TokenJob(operator, graph.features, task.shape.order, sink, nodes), DiskEngine(task.memory)
    if task.about["stored"] == "chebyshev":
        engine.chebyshev(job)
    else:
        engine.optimal(job)
    return sink.entries


def _put_together(rows: Assembly, part: tuple[int, int]) -> None:
    rows.write(*part)
