"""Raw columns in odd units: what scaling of features is worth, beside guessing and a model that is blind to the graph.

``python -m benchmarks.tables [--graphs a,b] [--json FILE] [--page FILE]``. Three splits of 60/20/20 each, one set of
settings for all graphs and at most 30 epochs; the epoch is chosen on validation scores and the test score is read once.
Two classes are scored by ROC-AUC, more by accuracy. The files of the data sets are found by ``POLYFORMER_DATA``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table_graphs import GRAPHS, SPLITS, write_twitch

SETTINGS = {"hidden_channels": 32, "lr": 5e-3, "batch_size": 512, "epochs": 30, "patience": 10}
CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {}),
    "unscaled": ("polyformer", {"order": 3, "scale_features": "none"}),
    "scaled": ("polyformer", {"order": 3}),
}
HEADER = """\
| graph | score | guess | mlp | polyformer, raw columns | polyformer, scaled columns | scaled - raw |
|---|---|---|---|---|---|---|"""
TEXT = """\
# Tables with raw columns

What is learned from columns as tables have them: dollars beside years, heavy tails, flags. This page is written by
`python -m benchmarks.tables --page docs/tables.md`. Each graph has three splits of 60/20/20; scores are test scores in
percent, mean and standard deviation over the splits. All graphs have the same settings ({settings}), chosen
before any score of this table was seen. *guess* is the score without looking at the nodes. *mlp* is blind to the
edges and reads scaled columns. *polyformer* reads the columns as they are (`--set scale_features=none`) or scaled,
which is the default for a graph of your own.

The two Twitch graphs are tables as they were published: days, views and a flag per user. In the others, columns are
random projections of a data set's features, or made up; each is in a unit of its own between 10^-3 and 10^6, and every
third has a heavy tail. The last line is trained on the English users and predicts the Russian ones.

"""


def train(graph: Path, contender: str, split: int, out: Path) -> dict[str, Any]:
    """One run; test score and seconds."""
    from polyformer.runs.execution import execute_run
    from polyformer.runs.request import RunRequest
    from polyformer.tasks import Task

    model, settings = CONTENDERS[contender]
    metric = {"metric": "roc_auc"} if Task.load(graph).num_classes == 2 else {}
    request = RunRequest(data=str(graph), model=model, split=split, settings={**SETTINGS, **settings, **metric})
    started = time.perf_counter()
    result = execute_run(request, out)
    return {"test": result["test"], "metric": result["metric"], "seconds": time.perf_counter() - started}


def guess(graph: Path, split: int) -> float:
    """The score without looking: the most common class of the training nodes, or half of the ROC area."""
    from polyformer.tasks import Task

    task = Task.load(graph)
    if task.num_classes == 2:
        return 0.5
    common = np.bincount(task.labels[task.splits[split].train]).argmax()
    return float((task.labels[task.splits[split].test] == common).mean())


def measure(name: str, root: Path, folder: Path) -> dict[str, Any]:
    """All contenders on all splits of a graph."""
    place = folder / "graph"
    GRAPHS[name](root, place)
    row: dict[str, Any] = {"graph": name, "guess": [guess(place, split) for split in range(SPLITS)], "seconds": 0.0}
    for contender in CONTENDERS:
        runs = [train(place, contender, split, folder / f"{contender}-{split}") for split in range(SPLITS)]
        row[contender], row["metric"] = [run["test"] for run in runs], runs[0]["metric"]
        row["seconds"] = max(row["seconds"], *(run["seconds"] for run in runs))
    return row


def transfer(root: Path, folder: Path) -> dict[str, Any]:
    """Train on the English users, predict the Russian ones: a graph, medians and units that training never saw."""
    from polyformer.runs.prediction import predict_scores
    from polyformer.runs.run import Run
    from polyformer.tasks import METRICS

    for country in ("ENGB", "RU"):
        write_twitch(country, root, folder / country)
    row: dict[str, Any] = {
        "graph": "twitch-ENGB → twitch-RU",
        "guess": [0.5] * SPLITS,
        "metric": "roc_auc",
        "seconds": 0,
    }
    for contender in CONTENDERS:
        row[contender] = []
        for split in range(SPLITS):
            run = folder / f"{contender}-{split}"
            seconds = train(folder / "ENGB", contender, split, run)["seconds"]
            row["seconds"] = max(row["seconds"], seconds)
            trained = Run(run)
            card, model = trained.load()
            task = trained.task(str(folder / "RU"))
            scores = predict_scores(model, card.reader, task.graph)
            row[contender].append(METRICS["roc_auc"](scores, task.labels))
    return row


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [f"{100 * np.mean(row[name]):.1f} ± {100 * np.std(row[name]):.1f}" for name in CONTENDERS]
    gain = 100 * (np.mean(row["scaled"]) - np.mean(row["unscaled"]))
    guessed = f"{100 * np.mean(row['guess']):.1f}"
    words = {"roc_auc": "ROC-AUC"}.get(row["metric"], row["metric"])
    return f"| {' | '.join([row['graph'], words, guessed, *cells, f'{gain:+.1f}'])} |"


def main() -> None:
    """Print a Markdown table; write JSON and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", default=";".join([*GRAPHS, "transfer"]), help="names, separated by semicolons")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(arguments.threads)
    root, rows = Path(os.environ["POLYFORMER_DATA"]), []
    print(HEADER, flush=True)
    for name in arguments.graphs.split(";"):
        with tempfile.TemporaryDirectory() as folder:
            row = transfer(root, Path(folder)) if name == "transfer" else measure(name, root, Path(folder))
        rows.append(row)
        print(line(row), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    if arguments.page is not None:
        settings = ", ".join(f"{name}={value}" for name, value in ({"order": 3} | SETTINGS).items())
        longest = max(row["seconds"] for row in rows)
        table = "\n".join([HEADER, *map(line, rows)])
        end = f"The longest run took {longest:.0f} s with {arguments.threads} thread(s).\n"
        arguments.page.write_text(f"{TEXT.format(settings=settings)}{table}\n\n{end}", encoding="utf-8")


if __name__ == "__main__":
    main()
