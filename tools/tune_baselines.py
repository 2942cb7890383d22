"""Gives every model the same search for settings, by validation scores alone, and keeps each trial.

    python -m tools.tune_baselines LOG.csv PRESET.csv --datasets chameleon_filtered --models gcn gat

Each (model, data set) has 20 trials or 10 minutes of processor time on one core, whichever is first; a trial's score
is the mean over three splits. The first trial has the model's defaults, then Optuna's TPE draws; a trial that falls
behind the median on its first split is given up. The trial that the end of the time interrupts does not count. A
(model, data set) whose trials are in LOG already is not searched again.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from polyformer.errors import PolyformerError
from polyformer.metrics import METRICS
from polyformer.presets import write_preset
from polyformer.runs.data import load_task
from polyformer.runs.request import RunRequest
from polyformer.tuning.journal import Search, claim, open_study
from polyformer.tuning.space import first_guesses, search_space, with_unsearched_defaults
from polyformer.tuning.trial_run import work

COLUMNS = ["dataset", "model", "basis", "trial", "state", "val", "splits", "settings", "cpu_seconds"]


def search_settings(
    dataset: str, model: str, basis: str | None, trials: int, minutes: float, splits: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the log, one a trial, and all settings of the best trial.

    Args:
        minutes: processor time of this process after which the search ends.
    """
    fixed = {} if basis is None else {"basis": basis}
    task, nodes = load_task(RunRequest(dataset, model, settings=fixed))
    space = search_space(RunRequest(dataset, model, settings=fixed), len(nodes.train), task.graph.num_features)
    request = with_unsearched_defaults(RunRequest(dataset, model, settings=fixed), space, len(nodes.train))
    larger_is_better = METRICS[task.metric].larger_is_better
    end = time.process_time() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="tune-") as folder:
        search = Search(request, space, Path(folder) / "study.journal", trials, splits, larger_is_better)
        study = open_study(search.journal, larger_is_better=larger_is_better)
        claim(study, search)
        for guess in first_guesses(request, space):
            study.enqueue_trial(guess)
        began = time.process_time()
        work(search, 0, lambda: time.process_time() > end)
        seconds = time.process_time() - began
        ended = [trial for trial in study.get_trials() if trial.state.name in ("COMPLETE", "PRUNED")]
        best = dict(request.asked_settings() | study.best_params)
    rows = [
        {
            "dataset": dataset,
            "model": model,
            "basis": basis,
            "trial": number,
            "state": trial.state.name.lower(),
            "val": "" if trial.value is None else round(trial.value, 6),
            "splits": splits,
            "settings": json.dumps(trial.params, sort_keys=True),
            "cpu_seconds": round(seconds / len(ended), 1),
        }
        for number, trial in enumerate(ended)
    ]
    return rows, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("preset", type=Path)
    parser.add_argument("--datasets", nargs="+", required=True)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--basis")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    if not options.log.exists():
        options.log.write_text(",".join(COLUMNS) + "\n")
    for dataset in options.datasets:
        for model in options.models:
            with options.log.open(newline="") as file:
                known = {(row["dataset"], row["model"], row["basis"]) for row in csv.DictReader(file)}
            if (dataset, model, options.basis or "") in known:
                continue
            try:
                rows, best = search_settings(
                    dataset, model, options.basis, options.trials, options.minutes, options.splits
                )
            except (PolyformerError, ValueError) as error:  # ValueError: no trial was completed
                print(dataset, model, f"no settings: {error}", flush=True)
                continue
            with options.log.open("a", newline="") as file:
                csv.DictWriter(file, COLUMNS, lineterminator="\n").writerows(rows)
            write_preset(options.preset, model, dataset, best)
            scores = [row["val"] for row in rows if row["state"] == "complete"]
            print(dataset, model, f"{len(rows)} trials, best of {len(scores)}: {max(scores)}", best, flush=True)


if __name__ == "__main__":
    main()
