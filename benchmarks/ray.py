"""What the Ray engine costs on top of the disk engine: the same blocks of columns, two tasks of one thread against two
threads in one process; and what goes through Ray.

``python -m benchmarks.ray [--nodes 4e6] [--edges 4e7] [--order 80] [--repeats 1] [--folder DIR] [--json FILE]``

The graph is made up; a block of 16 of its 32 columns takes a minute or more. Starting the cluster is told apart.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psutil
import torch

from polyformer.cluster import connected, import_ray, run_tasks
from polyformer.errors import OutOfResources
from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.propagation import ray as engine_module
from polyformer.propagation.disk import DiskEngine
from polyformer.propagation.engine import Engine
from polyformer.propagation.ray import PROCESS_BYTES, RayEngine
from polyformer.tasks import Task
from polyformer.tokens import write_tokens

COLUMNS, WIDTH = 32, 16


def main() -> None:
    """Measure both engines in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=float, default=4e6)
    parser.add_argument("--edges", type=float, default=4e7)
    parser.add_argument("--order", type=int, default=80)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keeps the graph for the next time")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        place = folder / "graph"
        if not place.exists():
            spec = (
                f"synthetic:nodes={arguments.nodes:.0f},edges={arguments.edges:.0f},features={COLUMNS},labelled=0.01,"
                f"dtype=float16"
            )
            subprocess.run([sys.executable, "-m", "polyformer", "import", spec, str(place)], check=True, stdout=2)
        result = measure(place, arguments.order, arguments.repeats, folder)
    print(table(result))
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


def measure(place: Path, order: int, repeats: int, folder: Path) -> dict[str, Any]:
    """Seconds of both engines, the least of some repeats, and the bytes that went through Ray."""
    task = Task.load(place)
    nodes, graph = (task.labels >= 0).nonzero()[0], task.graph
    limit = least_memory(graph, order)
    torch.set_num_threads(2)
    sent, returned = counted_messages()
    start = time.monotonic()
    with connected(cpus=2):
        starting = time.monotonic() - start
        engines: dict[str, Engine] = {"disk": DiskEngine(limit), "ray": RayEngine(limit + PROCESS_BYTES, workers=2)}
        times: dict[str, list[float]] = {name: [] for name in engines}
        work: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(repeats):
            for name, engine in engines.items():
                out = folder / f"tokens-{name}"
                shutil.rmtree(out, ignore_errors=True)
                start, before = time.monotonic(), cpu_seconds()
                write_tokens(graph, out, "chebyshev", order, nodes=nodes, engine=engine)
                times[name].append(time.monotonic() - start)
                work[name].append(cpu_seconds() - before)
        exchanged = object_store_bytes()
    same = all(
        (folder / "tokens-disk" / path.name).read_bytes() == path.read_bytes()
        for path in (folder / "tokens-ray").iterdir()
    )
    assert same, "the engines gave different bytes"
    assert exchanged == 0, f"{exchanged} bytes went through the object store"
    return {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "columns": COLUMNS,
        "block_columns": WIDTH,
        "order": order,
        "cluster_start_seconds": round(starting, 1),
        "disk_seconds": [round(value, 1) for value in times["disk"]],
        "ray_seconds": [round(value, 1) for value in times["ray"]],
        "disk_cpu_seconds": [round(value, 1) for value in work["disk"]],
        "ray_cpu_seconds": [round(value, 1) for value in work["ray"]],
        "ratio": round(min(times["ray"]) / min(times["disk"]), 3),
        "object_store_bytes": exchanged,
        "bytes_between_workers_per_hop": exchanged / order,
        "largest_task_bytes": max(sent),
        "largest_result_bytes": max(returned),
        "same_bytes": same,
    }


def cpu_seconds() -> float:
    """Of this process and all that it has started, the cluster's among them."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def least_memory(graph: Graph, order: int) -> int:
    """The least memory, to 8 MiB, with which the disk engine takes blocks of 16 columns."""
    assert graph.features is not None
    limit, width = 0, 0
    while width < WIDTH:
        limit += 8 << 20
        try:
            width = DiskEngine(limit).plan(Operator(graph), order, graph.features, True, COLUMNS).width
        except OutOfResources:
            continue
    assert width == WIDTH
    return limit


def counted_messages() -> tuple[list[int], list[int]]:
    """Have the engine's tasks weighed: bytes of what each is given and of what it gives back."""
    sent: list[int] = []
    returned: list[int] = []

    def weighed(function: Callable[[Any], Any], arguments: Any, **options: Any) -> Generator[tuple[Any, Any]]:
        for argument, result in run_tasks(function, arguments, **options):
            sent.append(len(pickle.dumps((function, argument))))
            returned.append(len(pickle.dumps(result)))
            yield argument, result

    engine_module.run_tasks = weighed
    return sent, returned


def object_store_bytes() -> int:
    """All that was ever put into the object stores, but for the 8 bytes by which each process tries its own."""
    from ray._private.internal_api import node_stats

    ray = import_ray()
    total = 0
    for node in ray.nodes():
        stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False)
        total += stats.store_stats.cumulative_created_bytes - 8 * stats.store_stats.cumulative_created_objects
    return int(total)


def table(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    return "\n".join(
        [
            f"{result['num_nodes']:,} nodes, {result['num_edges']:,} edges, {COLUMNS} columns in blocks of {WIDTH}, "
            f"order {result['order']}:",
            "",
            "| engine | seconds | CPU seconds |",
            "|---|---|---|",
            f"| disk, two threads | {min(result['disk_seconds'])} | {min(result['disk_cpu_seconds'])} |",
            f"| ray, two tasks of one thread | {min(result['ray_seconds'])} | {min(result['ray_cpu_seconds'])} |",
            "",
            f"Ratio {result['ratio']}; starting the cluster took {result['cluster_start_seconds']} s more. Bytes "
            f"between workers: {result['bytes_between_workers_per_hop']:.0f} a hop; through Ray's object store: "
            f"{result['object_store_bytes']}; a task was at most {result['largest_task_bytes']} bytes, its result "
            f"{result['largest_result_bytes']}.",
        ]
    )


if __name__ == "__main__":
    main()
