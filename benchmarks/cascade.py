"""What the cascade costs: processor seconds an epoch, and peak memory on graphs of the size of ogbn-arxiv.

``python -m benchmarks.cascade [--epochs 30] [--graphs wordnet,ogbn-arxiv-graph:projection=128] [--json FILE]``. An
epoch is the training step and the validation, on one thread; the median counts, and the best stands beside it.
The deep convolutions are measured beside the cascade, in the same minutes. Each row is a process of its own; memory is
the peak of the whole process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONTRACT = {"order": 2, "num_layers": 4, "hidden_channels": 32}
"""The size for which the cascade promises 0.1 processor seconds an epoch on minesweeper."""

EPOCHS: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    ("cascade", None, CONTRACT),
    ("cascade", None, {**CONTRACT, "coefficient": "none"}),
    ("cascade", None, {**CONTRACT, "coefficient": "polyattn"}),
    ("cascade", "beyond", {}),
    ("gcn-tuned", "beyond", {}),
    ("sage-tuned", "beyond", {}),
    ("gat-tuned", "beyond", {}),
)
GRAPHS = ("wordnet", "ogbn-arxiv-graph:projection=128")
MEMORY_EPOCHS = 2


def measure(dataset: str, model: str, preset: str | None, settings: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Train for some epochs in this process, after two that warm up."""
    import torch

    from polyformer.datasets import load_dataset
    from polyformer.machine import peak_memory
    from polyformer.runs.request import RunRequest
    from polyformer.runs.saved_model import ModelCard
    from polyformer.training.loop import Trainer
    from polyformer.training.workload import workload_of

    torch.set_num_threads(1)
    task = load_dataset(dataset)
    request = RunRequest(task.name, model, preset=preset, settings=settings)
    card, split = ModelCard.of(model, request.resolve_settings(), task), task.splits[0]
    training = card.training.resolve(len(split.train), task.graph.num_features)
    built = card.build(0)
    built.bind(task.graph, workload_of(split, training))
    trainer = Trainer(
        built, task.objective, task.metric, task.labels, split, training, keep_freed_memory=epochs > MEMORY_EPOCHS
    )
    seconds = []
    for _ in range(2 + epochs):
        began = time.process_time()
        trainer._run_epoch()
        seconds.append(time.process_time() - began)
    parameters = sum(parameter.numel() for parameter in built.parameters())
    return {
        "dataset": dataset,
        "model": model,
        "preset": preset,
        "settings": settings,
        "parameters": parameters,
        "cpu_seconds": round(statistics.median(seconds[2:]), 4),
        "best_cpu_seconds": round(min(seconds[2:]), 4),
        "estimated_gib": estimate(built, task.graph.num_nodes),
        "peak_gib": round(peak_memory() / 2**30, 2),
    }


def estimate(model: Any, num_nodes: int) -> float | None:
    """The GiB that a cascade asks for before it trains; None for other models."""
    from polyformer.models.cascade import CascadeModel

    return round(model.settings.training_bytes(num_nodes) / 2**30, 2) if isinstance(model, CascadeModel) else None


def in_a_process(*parts: Any) -> dict[str, Any]:
    """:func:`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.cascade", "--child", json.dumps(parts)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    settings = ", ".join(f"{name}={value}" for name, value in row["settings"].items())
    words = " ".join(filter(None, [row["model"], row["preset"] and f"preset {row['preset']}", settings]))
    cells = [row["dataset"], words, f"{row['parameters']:,}", row["cpu_seconds"], row["best_cpu_seconds"]]
    cells += ["–" if row["estimated_gib"] is None else row["estimated_gib"], row["peak_gib"]]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def main() -> None:
    """Print a Markdown table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(*json.loads(arguments.child))))
        return
    print("| data set | model | parameters | CPU s an epoch | best | estimated GiB of a step | peak GiB |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    large = [(graph, "cascade", None, {}, MEMORY_EPOCHS) for graph in filter(None, arguments.graphs.split(","))]
    small = [("minesweeper", *row, arguments.epochs) for row in EPOCHS]
    for parts in [*small, *large]:
        rows.append(in_a_process(*parts))
        print(line(rows[-1]), flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
