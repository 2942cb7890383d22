"""Seconds per epoch with the published settings: ours against the literal implementation, in alternating processes.

``python -m benchmarks.training [--datasets a,b] [--bases monomial,chebyshev] [--threads 1] [--epochs 2] [--rounds 2]
[--json FILE] [--before CHECKOUT]``
An epoch is the training step and the validation; the sides take turns, and the best epoch of all rounds counts. Peak
memory is counted above the bare imports. Each row also says which share of a limit its epoch reaches: the multiply-adds
of the model's formula at the rate of a large float32 product, measured in the same process, once as torch computes it
and once by the faster of torch and the native kernel. ``--before`` measures another checkout of ours too, whose kernel
is built; ``--clock cpu`` counts processor seconds of the one thread, where others use the machine; ``--sides ours``
leaves the literal implementation out; ``--batch-size auto`` takes mini-batches. Where the tokens of the literal
implementation would not fit in memory, it is not run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMPORTS = (
    "benchmarks.literal",
    "polyformer.models.polyformer",
    "polyformer.training.loop",
    "scipy.io",
    "sklearn.metrics",
)
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}
DATASETS = ("chameleon_filtered", "squirrel_filtered", "citeseer", "minesweeper", "tolokers", "pubmed", "cs", "physics")


def measure(side: str, dataset: str, basis: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run in a process of its own: best of several epochs after one to warm up."""
    import numpy as np
    import torch

    from polyformer.datasets import load_dataset
    from polyformer.machine import peak_memory
    from polyformer.presets import load_preset

    torch.set_num_threads(arguments.threads)
    clock, batch = CLOCKS[arguments.clock], arguments.batch_size
    warm_up()
    bare = peak_memory()
    task = load_dataset(dataset)
    settings = load_preset("paper", dataset, basis)
    if batch:
        settings["batch_size"] = int(batch) if batch.isdigit() else batch
    run = literal_epochs if side == "literal" else our_epochs
    seconds = []
    for epoch in run(task, settings):
        start = clock()
        epoch()
        seconds.append(clock() - start)
        if len(seconds) > arguments.epochs:
            break
    measured = {"seconds": float(np.min(seconds[1:])), "memory": peak_memory() - bare}
    return measured | limits(task, settings, clock) if side == "ours" else measured


def limits(task: Any, settings: dict[str, Any], clock: Callable[[], float]) -> dict[str, float]:
    """The least seconds of an epoch at torch's rate of dense products, and at the faster one of torch's and ours."""
    from benchmarks.roofline import kernel_rate, limit_of, torch_rate

    bound = limit_of(our_trainer(task, settings).model, task, settings, clock)
    rates = torch_rate(clock), kernel_rate(clock) or 0.0
    at_torch, at_best = (bound["products"] / rate + bound["sparse_seconds"] for rate in (rates[0], max(rates)))
    return {"limit": at_torch, "best_limit": at_best, "torch_rate": rates[0], "kernel_rate": rates[1], **bound}


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
    trainer = our_trainer(task, settings)
    while True:
        yield trainer._run_epoch


def our_trainer(task: Any, settings: dict[str, Any]) -> Any:
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
    return Trainer(model, task.objective, task.metric, task.labels, split, training)


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
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--batch-size", default="")
    parser.add_argument("--sides", default="ours,literal")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        side, dataset, basis = arguments.child.split(",")
        print(json.dumps(measure(side, dataset, basis, arguments)))
        return
    rows = []
    print(HEADER)
    for dataset in arguments.datasets.split(","):
        for basis in arguments.bases.split(","):
            row: dict[str, Any] = {"dataset": dataset, "basis": basis, "threads": arguments.threads}
            row |= best_of_rounds(dataset, basis, arguments)
            rows.append(row)
            print(table_row(row), flush=True)
    for side in ("literal", "before"):
        ratios = [row[side]["seconds"] / row["ours"]["seconds"] for row in rows if row.get(side) is not None]
        if ratios:
            mean = math.prod(ratios) ** (1 / len(ratios))
            print(f"\n{side} / ours, geometric mean of {len(ratios)} ratios: {mean:.1f}×")
    rates = [(row["ours"]["torch_rate"], row["ours"]["kernel_rate"]) for row in rows]
    print(
        f"\ndense products, GFlop/s, median: torch {gigaflops(rates, 0):.0f}, native kernel {gigaflops(rates, 1):.0f}"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


def best_of_rounds(dataset: str, basis: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both sides by name, each with the best time and the lowest peak of its rounds; None where a side cannot run."""
    names = [*arguments.sides.split(","), *(["before"] if arguments.before is not None else [])]
    sides: dict[str, Any] = {"ours": None, "literal": None} | dict.fromkeys(names)
    for _ in range(arguments.rounds):
        for side in dict.fromkeys(names):
            if side == "literal" and token_gigabytes(dataset, basis) > 8:
                continue
            measured, earlier = child(side, dataset, basis, arguments), sides[side] or {}
            for name in ("seconds", "memory"):
                measured[name] = min(measured[name], earlier.get(name, measured[name]))
            for name in {"torch_rate", "kernel_rate"} & earlier.keys():  # the machine at its fastest is the limit
                measured[name] = max(measured[name], earlier[name])
            for name in {"limit", "best_limit"} & earlier.keys():
                measured[name] = min(measured[name], earlier[name])
            sides[side] = measured
    return sides


def child(side: str, dataset: str, basis: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one side in a fresh process."""
    options = ["--threads", str(arguments.threads), "--epochs", str(arguments.epochs), "--clock", arguments.clock]
    if arguments.batch_size:
        options += ["--batch-size", arguments.batch_size]
    command = [sys.executable, "-m", "benchmarks.training", "--child", f"{side},{dataset},{basis}", *options]
    environment = None if side != "before" else os.environ | {"PYTHONPATH": str(arguments.before / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


HEADER = """\
| data set | basis | route | literal s/epoch | before | ours | literal / ours | before / ours | of torch's rate | \
of the best rate | ours MB | of literal |
|---|---|---|---|---|---|---|---|---|---|---|---|"""


def table_row(row: dict[str, Any]) -> str:
    """A line of the table: seconds, ratios, the shares of both limits, and memory."""
    ours, literal, before = row["ours"], row["literal"], row.get("before")
    taken = ours["seconds"]
    cells = [row["dataset"], row["basis"], "projected" if ours["sparse_seconds"] else "stored"]
    cells += ["-" if side is None else f"{side['seconds']:.3f}" for side in (literal, before, ours)]
    cells += ["-" if side is None else f"{side['seconds'] / taken:.1f}×" for side in (literal, before)]
    cells += [f"{ours[limit] / taken:.2f}" for limit in ("limit", "best_limit")]
    cells += [f"{ours['memory'] / 1e6:.0f}"]
    cells += ["-" if literal is None else f"{ours['memory'] / max(1, literal['memory']):.2f}"]
    return f"| {' | '.join(cells)} |"


def gigaflops(rates: list[tuple[float, float]], which: int) -> float:
    """The median of the rates of multiply-adds, in 1e9 operations a second."""
    return 2e-9 * statistics.median(pair[which] for pair in rates)


if __name__ == "__main__":
    main()
