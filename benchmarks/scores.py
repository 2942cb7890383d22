"""Time to the published score: the preset ``fast`` on every data set that it has, beside the published PolyFormer.

``python -m benchmarks.scores [--datasets a,b] [--splits 3] [--threads 2] [--json FILE]``. Three splits each; all ten of
Chameleon and Squirrel, whose splits differ by several points. Epochs are chosen on validation scores alone and the test
score is read once, at the chosen epoch. Seconds are those of one run, tokens and training.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

DATASETS = (
    "chameleon_filtered",
    "squirrel_filtered",
    "citeseer",
    "minesweeper",
    "tolokers",
    "pubmed",
    "cs",
    "physics",
)
ALL_SPLITS = ("chameleon_filtered", "squirrel_filtered")
BASES = ("chebyshev", "monomial")
HEADER = """\
| data set | basis | test | runs | published | difference | published, other basis | longest run |
|---|---|---|---|---|---|---|---|"""


def published(dataset: str, basis: str) -> float:
    """PolyFormer in the paper's table of node classification, in percent."""
    from polyformer.experiments.published import published_scores

    [entry] = published_scores("polyformer", dataset, basis, "node-classification")
    assert entry.score is not None
    return 100 * entry.score


def run(dataset: str, split: int, folder: Path) -> dict[str, Any]:
    """Train once; test score and seconds."""
    from polyformer.runs.execution import execute_run
    from polyformer.runs.request import RunRequest

    result = execute_run(RunRequest(data=dataset, preset="fast", split=split), folder / f"{dataset}-{split}")
    return {"split": split, "test": result["test"], "seconds": result["seconds"], "epochs": result["epochs"]}


def line(row: dict[str, Any]) -> str:
    """A row of the table, from the runs on one data set."""
    from polyformer.experiments.summary import mean_interval

    scores, other = [100 * one["test"] for one in row["runs"]], BASES[row["basis"] == BASES[0]]
    mean, theirs = sum(scores) / len(scores), published(row["dataset"], row["basis"])
    cells = [
        row["dataset"],
        row["basis"],
        f"{mean:.2f} ± {mean_interval(scores):.2f}" if len(scores) > 1 else f"{mean:.2f}",
        str(len(scores)),
        f"{theirs:.2f}",
        f"{mean - theirs:+.2f}",
        f"{published(row['dataset'], other):.2f}",
        f"{max(one['seconds'] for one in row['runs']):.0f} s",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a Markdown table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import torch

    from polyformer.presets import load_preset

    torch.set_num_threads(arguments.threads)
    rows = []
    print(f"threads {arguments.threads}\n")
    print(HEADER)
    for dataset in arguments.datasets.split(","):
        splits = 10 if dataset in ALL_SPLITS and arguments.splits >= 3 else arguments.splits
        with tempfile.TemporaryDirectory() as folder:
            runs = [run(dataset, split, Path(folder)) for split in range(splits)]
        rows.append({"dataset": dataset, "basis": load_preset("fast", dataset)["basis"], "runs": runs})
        print(line(rows[-1]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
