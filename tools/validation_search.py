"""Tries settings of models on a data set and keeps the validation score of each; the test nodes are never scored.

    python -m tools.validation_search TRIALS.jsonl LOG.csv [--splits 0 1 2]

Each line of TRIALS is a JSON object with ``dataset``, ``model`` and the settings that differ from the model's defaults,
or from those of the ``preset`` that it names.
A trial whose line is in LOG already is not run again, so a search that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets import load_dataset
from polyformer.errors import PolyformerError
from polyformer.reporter import EpochRecord, Reporter
from polyformer.runs.known_labels import StoredLabels
from polyformer.runs.request import RunRequest
from polyformer.runs.saved_model import ModelCard
from polyformer.tasks import Task
from polyformer.training.loop import Trainer, derive_seed
from polyformer.training.workload import label_masks_of, workload_of

COLUMNS = ["dataset", "model", "settings", "split", "seed", "val", "best_epoch", "epochs", "parameters", "cpu_seconds"]


class Progress(Reporter):
    """Prints a line every 100 epochs."""

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        if record.epoch % 100 == 0:
            print(f"  epoch {record.epoch}: loss {record.loss:.4f}, best {best_score:.4f} at {best_epoch}", flush=True)


def run_trial(task: Task, model_name: str, settings: dict[str, Any], split_number: int, seed: int) -> dict[str, Any]:
    """Train once; returns what the log keeps."""
    asked = {name: value for name, value in settings.items() if name != "preset"}
    request = RunRequest(task.name, model_name, preset=settings.get("preset"), settings=asked)
    card, split = ModelCard.of(model_name, request.resolve_settings(), task), task.splits[split_number]
    training = card.training.resolve(len(split.train), task.graph.num_features)
    model = card.build(derive_seed(seed, 0))
    labels = StoredLabels.of(task, split).known if card.label_channels else None
    masks = label_masks_of(model, training, len(split.train), seed)
    model.bind(task.graph, workload_of(split, training, labels=labels, masks=masks))
    trainer = Trainer(
        model,
        task.objective,
        task.metric,
        task.labels,
        split,
        training,
        seed=seed,
        reporter=Progress(),
        keep_freed_memory=True,
    )
    began = time.process_time()
    trainer.run()
    return {
        "val": round(trainer.stopping.best_score, 6),
        "best_epoch": trainer.stopping.best_epoch,
        "epochs": trainer.epoch,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def key_of(row: dict[str, Any]) -> tuple[str, ...]:
    """What tells one trial from another."""
    return tuple(str(row[name]) for name in ("dataset", "model", "settings", "split", "seed"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    known = {key_of(row) for row in csv.DictReader(options.log.open())} if options.log.exists() else set()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    if not options.log.exists():
        options.log.write_text(",".join(COLUMNS) + "\n")
    for line in options.trials.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        trial = json.loads(line)
        dataset, model = trial.pop("dataset"), trial.pop("model")
        splits, seed = trial.pop("splits", options.splits), trial.pop("seed", None)
        task = load_dataset(dataset)
        scores = []
        for split in splits:
            row = {"dataset": dataset, "model": model, "settings": json.dumps(trial, sort_keys=True), "split": split}
            row["seed"] = split if seed is None else seed
            if key_of(row) in known:
                continue
            try:
                row |= run_trial(task, model, trial, split, row["seed"])
            except PolyformerError as error:
                print(dataset, model, trial, error, flush=True)
                break
            known.add(key_of(row))
            scores.append(row["val"])
            with options.log.open("a", newline="") as file:
                csv.DictWriter(file, COLUMNS).writerow(row)
        if scores:
            print(dataset, model, json.dumps(trial), f"{100 * np.mean(scores):.2f}", scores, flush=True)


if __name__ == "__main__":
    main()
