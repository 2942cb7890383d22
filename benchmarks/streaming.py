"""Epochs over tokens on disk, ten times larger than the memory they may use, against epochs over tokens in memory.

``python -m benchmarks.streaming [--rows 60000] [--order 4] [--features 128] [--hidden 64] [--threads 1] [--epochs 2]
[--basis chebyshev] [--folder DIR] [--json FILE] [--check]``
An epoch is the training steps and the validation, alternating between both sides in one process. Pages that were read
are given back to the system, so that every epoch reads from the disk; the bytes that the system counts as read are
shown. ``--check`` fails unless streaming reaches at least half the speed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def disk_bytes() -> int:
    """What this process has read from disks, not from the page cache."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes")).split()[1])


def forget_pages(path: Path) -> None:
    """Write the file out and drop it from the page cache; pages that are still mapped would stay."""
    gc.collect()
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Best of ``epochs`` epochs of each side after one to warm up."""
    import torch

    from polyformer.graph import Graph
    from polyformer.splits import Split
    from polyformer.tasks import Task
    from polyformer.tokens import token_bytes, write_tokens

    torch.set_num_threads(arguments.threads)
    random = np.random.default_rng(0)
    count = arguments.rows
    features = random.standard_normal((count, arguments.features), dtype=np.float32)
    graph = Graph(random.integers(0, count, (2, 4 * count)), features)
    nodes = random.permutation(count)
    train, val = np.sort(nodes[: 9 * count // 10]), np.sort(nodes[9 * count // 10 :])
    task = Task("random", graph, random.integers(0, 10, count), [Split(train, val, nodes[:0])])
    write_tokens(graph, folder / "tokens", arguments.basis, arguments.order)
    forget_pages(folder / "tokens" / "tokens.npy")
    size = token_bytes(count, arguments.order, arguments.features)
    sides = {
        "memory": trainer(task, arguments, 4 * size, None),
        "streamed": trainer(task, arguments, size // 10, folder / "tokens"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    read = 0
    for _ in range(1 + arguments.epochs):
        for name, side in sides.items():
            before, start = disk_bytes(), time.perf_counter()
            side._run_epoch()
            seconds[name].append(time.perf_counter() - start)
            read = disk_bytes() - before
    best = {name: float(np.min(values[1:])) for name, values in seconds.items()}
    return {
        "rows": count,
        "order": arguments.order,
        "features": arguments.features,
        "basis": arguments.basis,
        "threads": arguments.threads,
        "token_bytes": size,
        "memory_bound": size // 10,
        "read_bytes_per_epoch": read,
        "seconds": best,
        "speed": best["memory"] / best["streamed"],
    }


def trainer(task: Any, arguments: argparse.Namespace, memory: int, tokens: Path | None) -> Any:
    """A trainer whose tokens are in memory, or on disk beyond the bound."""
    from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings
    from polyformer.training.loop import Trainer
    from polyformer.training.settings import TrainingSettings
    from polyformer.training.workload import workload_of

    settings = PolyFormerSettings(
        basis=arguments.basis, order=arguments.order, hidden_channels=arguments.hidden, token_route="stored"
    )
    model = PolyFormerModel(task.graph.num_features, task.num_classes, settings)
    split = task.splits[0]
    training = TrainingSettings().resolve(len(split.train), task.graph.num_features)
    model.bind(task.graph, workload_of(split, training, memory, tokens))
    assert model.route == ("stored" if tokens is None else "streamed")
    return Trainer(model, task.objective, task.metric, task.labels, split, training)


def main() -> None:
    """Print the ratio and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--basis", default="chebyshev")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the tokens are written; on the disk that is meant")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        result = measure(Path(folder), arguments)
    seconds = result["seconds"]
    print("| tokens | bound | read an epoch | in memory s/epoch | streamed s/epoch | speed |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {result['token_bytes'] / 1e6:.0f} MB | {result['memory_bound'] / 1e6:.0f} MB | "
        f"{result['read_bytes_per_epoch'] / 1e6:.0f} MB | {seconds['memory']:.2f} | {seconds['streamed']:.2f} | "
        f"{result['speed']:.2f}× |"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    if arguments.check and result["speed"] < 0.5:
        raise SystemExit("Streaming must reach at least half the speed of tokens in memory.")


if __name__ == "__main__":
    main()
