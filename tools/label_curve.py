"""Measures what known labels as input gain where few or many labels are known.

    python -m tools.label_curve RECORDS.csv [--dataset minesweeper] [--splits 0 1 2]

The training nodes of a split are cut to 5 %, 10 % and 50 % of all nodes; validation and test nodes stay. Settings are
those of the cascade in the plan ``label-tokens``, with labels as input and without. Rows that are in RECORDS already
are not run again.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import polyformer as pf
from polyformer.datasets import load_dataset
from polyformer.experiments.records import Records
from polyformer.splits import Split
from polyformer.tasks import Task

RECORDS = Path(__file__).parents[1] / "results" / "label-tokens-curve" / "curve.csv"
COLUMNS = ["dataset", "model", "known", "label_input", "split", "seed", "val", "test", "epochs", "cpu_seconds"]
KNOWN = (0.05, 0.1, 0.5)
MODEL = "cascade"


def fewer_labels(split: Split, known: float, num_nodes: int, seed: int) -> Split:
    """The split with so many training nodes, a share of all nodes, drawn by the seed."""
    count = min(len(split.train), round(known * num_nodes))
    train = np.random.default_rng((seed, 7)).permutation(split.train)[:count]
    return Split(np.sort(train), split.val, split.test)


def run_once(task: Task, known: float, label_input: float, number: int, settings: dict[str, Any]) -> dict[str, Any]:
    """One training; the epoch is selected by validation."""
    split = fewer_labels(task.splits[number], known, task.graph.num_nodes, number)
    with tempfile.TemporaryDirectory() as folder:
        asked = settings | {"label_input": label_input}
        run = pf.train(replace(task, splits=[split]), MODEL, Path(folder) / "run", seed=number, **asked)
        result = run.result
    assert result is not None
    return {name: result[name] for name in ("val", "test", "epochs", "cpu_seconds")}


def plan_scores(plan: str) -> dict[int, float]:
    """Test scores in percent of the cascade's or PolyFormer's records of a plan, by split."""
    records = Records(RECORDS.parents[1]).of_plan(plan).read()
    results = [record["result"] for record in records.values() if record["model"] in ("cascade", "polyformer")]
    return {result["split"]: 100 * result["test"] for result in results}


def curve_table(records: Path) -> str:
    """The curve as a table for the page: mean test scores in percent over the splits that have both runs.

    A gain is the mean of the paired differences.
    """
    with records.open() as file:
        scores = {
            (float(row["known"]), float(row["label_input"]) > 0, row["split"]): 100 * float(row["test"])
            for row in csv.DictReader(file)
        }
    lines = ["| labels known, of all nodes | without | with labels as input | gain | splits |", "|---|---|---|---|---|"]
    for known in KNOWN:
        splits = [split for share, shown, split in scores if share == known and shown]
        pairs = [
            (scores[known, False, split], scores[known, True, split])
            for split in splits
            if (known, False, split) in scores
        ]
        if pairs:
            without, shown = np.mean(pairs, axis=0)
            lines.append(f"| {known:.0%} | {without:.2f} | {shown:.2f} | {shown - without:+.2f} | {len(pairs)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--dataset", default="minesweeper")
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    plan = tomllib.loads((files("polyformer.experiments") / "plans" / "label-tokens.toml").read_text())
    share, settings, task = plan["settings"]["label_input"], plan["models"][MODEL], load_dataset(options.dataset)
    options.records.parent.mkdir(parents=True, exist_ok=True)
    if not options.records.exists():
        options.records.write_text(",".join(COLUMNS) + "\n")
    with options.records.open() as file:
        done = {tuple(row[name] for name in COLUMNS[:5]) for row in csv.DictReader(file)}
    for number in options.splits:
        for known in KNOWN:
            for label_input in (share, 0.0):
                row = dict(zip(COLUMNS, (options.dataset, MODEL, known, label_input, number, number), strict=False))
                if tuple(str(row[name]) for name in COLUMNS[:5]) in done:
                    continue
                row |= run_once(task, known, label_input, number, settings)
                with options.records.open("a", newline="") as file:
                    csv.DictWriter(file, COLUMNS).writerow(row)
                print(row, flush=True)


if __name__ == "__main__":
    main()
