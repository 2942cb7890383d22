"""Seconds per epoch with the published settings: ours against the literal implementation, in alternating processes.

``python -m benchmarks.training [--datasets a,b] [--bases monomial,chebyshev] [--threads 1] [--epochs 2] [--rounds 2]
[--json FILE]``
An epoch is the training step and the validation; the sides take turns, and the best epoch of all rounds counts. Peak
memory is counted above the bare imports. Where the stored tokens of the literal implementation would not fit in memory,
it is not run and the row says so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

IMPORTS = (
    "benchmarks.literal",
    "polyformer.models.polyformer",
    "polyformer.training.loop",
    "scipy.io",
    "sklearn.metrics",
)
DATASETS = ("chameleon_filtered", "squirrel_filtered", "citeseer", "minesweeper", "tolokers", "pubmed", "cs", "physics")


def measure(side: str, dataset: str, basis: str, threads: int, epochs: int) -> dict[str, Any]:
    """Run in a process of its own: best of ``epochs`` epochs after one to warm up."""
    import numpy as np
    import torch

    from polyformer.datasets import load_dataset
    from polyformer.machine import peak_memory
    from polyformer.presets import load_preset

    torch.set_num_threads(threads)
    warm_up()
    bare = peak_memory()
    task = load_dataset(dataset)
    settings = load_preset("paper", dataset, basis)
    run = literal_epochs if side == "literal" else our_epochs
    seconds = []
    for epoch in run(task, settings):
        start = time.perf_counter()
        epoch()
        seconds.append(time.perf_counter() - start)
        if len(seconds) > epochs:
            break
    return {"seconds": float(np.min(seconds[1:])), "memory": peak_memory() - bare}


def warm_up() -> None:
    """Import what either side imports where it is used first, so that it does not count as memory of that side."""
    import torch

    for module in IMPORTS:
        importlib.import_module(module)
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(layer.parameters(), fused=True)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def our_epochs(task: Any, settings: dict[str, Any]) -> Any:
    from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings
    from polyformer.settings import split_settings
    from polyformer.training.loop import Trainer
    from polyformer.training.settings import TrainingSettings
    from polyformer.training.workload import workload_of

    model_settings, training = split_settings([PolyFormerSettings, TrainingSettings], settings)
    out = task.objective.out_channels(task.num_classes)
    model = PolyFormerModel(task.graph.num_features, out, model_settings)
    split = task.splits[0]
    training = training.resolve(len(split.train), task.graph.num_features)
    model.bind(task.graph, workload_of(split, training))
    trainer = Trainer(model, task.objective, task.metric, task.labels, split, training)
    while True:
        yield trainer._run_epoch


def literal_epochs(task: Any, settings: dict[str, Any]) -> Any:
    import torch

    from benchmarks.literal import LiteralPolyFormer
    from polyformer.metrics import METRICS
    from polyformer.tokens import compute_tokens

    tokens = compute_tokens(task.graph, settings["basis"], settings["order"], settings["self_loops"])
    names = ("hidden_channels", "order", "num_layers", "heads", "ffn_channels", "mlp_ratio", "decay", "dropout")
    options = {name: settings[name] for name in (*names, "attention_dropout")}
    out = task.objective.out_channels(task.num_classes)
    model = LiteralPolyFormer(task.graph.num_features, out_channels=out, **options)
    attention = model.attention_parameters()
    attention_ids = {id(parameter) for parameter in attention}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in attention_ids]
    groups = [
        {"params": rest, "lr": settings["lr"], "weight_decay": settings["weight_decay"]},
        {"params": attention, "lr": settings["attention_lr"], "weight_decay": settings["attention_weight_decay"]},
    ]
    optimizer = torch.optim.Adam(groups)
    split, labels = task.splits[0], torch.from_numpy(task.labels)
    train = torch.from_numpy(split.train)
    passes = 1 if task.objective.name == "binary" else 4

    def epoch() -> None:
        model.train()
        optimizer.zero_grad()
        task.objective.loss(model(tokens)[train], labels[train]).div(len(train)).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            for _ in range(passes):
                outputs = model(tokens)
        METRICS[task.metric](task.objective.scores(outputs[split.val]), task.labels[split.val])

    while True:
        yield epoch


def token_gigabytes(dataset: str, basis: str) -> float:
    """What the literal implementation's stored tokens take, from the published counts."""
    from polyformer.datasets import DATASETS as TABLE
    from polyformer.presets import load_preset

    counts = TABLE[dataset].counts
    assert counts is not None
    return 4e-9 * counts.nodes * counts.features * (load_preset("paper", dataset, basis)["order"] + 1)


def main() -> None:
    """Print a Markdown table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--bases", default="monomial,chebyshev")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        side, dataset, basis = arguments.child.split(",")
        print(json.dumps(measure(side, dataset, basis, arguments.threads, arguments.epochs)))
        return
    rows = []
    print("| data set | basis | literal s/epoch | ours s/epoch | ratio | literal MB | ours MB | share |")
    print("|---|---|---|---|---|---|---|---|")
    for dataset in arguments.datasets.split(","):
        for basis in arguments.bases.split(","):
            row: dict[str, Any] = {"dataset": dataset, "basis": basis, "threads": arguments.threads}
            row |= best_of_rounds(dataset, basis, arguments)
            rows.append(row)
            print(table_row(row), flush=True)
    ratios = [row["literal"]["seconds"] / row["ours"]["seconds"] for row in rows if row["literal"] is not None]
    if ratios:
        print(f"\ngeometric mean of {len(ratios)} ratios: {math.prod(ratios) ** (1 / len(ratios)):.1f}×")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


def best_of_rounds(dataset: str, basis: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both sides by name, each with the best time and the lowest peak of its rounds; None where a side cannot run."""
    sides: dict[str, Any] = {"ours": None, "literal": None}
    for _ in range(arguments.rounds):
        for side, before in sides.items():
            if side == "literal" and token_gigabytes(dataset, basis) > 8:
                continue
            measured = child(side, dataset, basis, arguments)
            sides[side] = {
                name: measured[name] if before is None else min(measured[name], before[name]) for name in measured
            }
    return sides


def child(side: str, dataset: str, basis: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one side in a fresh process."""
    options = ["--threads", str(arguments.threads), "--epochs", str(arguments.epochs)]
    command = [sys.executable, "-m", "benchmarks.training", "--child", f"{side},{dataset},{basis}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table_row(row: dict[str, Any]) -> str:
    ours, literal = row["ours"], row["literal"]
    start = f"| {row['dataset']} | {row['basis']} |"
    if literal is None:
        return f"{start} tokens do not fit | {ours['seconds']:.3f} | - | - | {ours['memory'] / 1e6:.0f} | - |"
    ratio, share = literal["seconds"] / ours["seconds"], ours["memory"] / max(1, literal["memory"])
    return (
        f"{start} {literal['seconds']:.3f} | {ours['seconds']:.3f} | {ratio:.1f}× | "
        f"{literal['memory'] / 1e6:.0f} | {ours['memory'] / 1e6:.0f} | {share:.2f} |"
    )


if __name__ == "__main__":
    main()
