"""Default settings against the baselines, on graphs that nobody tuned for.

``python -m benchmarks.defaults choose --settings '{"lr": 0.001}' --note WHY`` trains a model on the development half
and records a validation score of nodes that did not stop the training; no test node is read.
``python -m benchmarks.defaults measure --models mlp,gcn`` trains with defaults on the real splits and records test
scores. Both append to a file of records and skip what is there. ``show`` prints the records of ``choose``, ``table``
those of ``measure``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.default_graphs import DEVELOPMENT, GRAPHS, SPLITS, write_graph

RESULTS = Path(__file__).parent / "results"
CHOICES, MEASURED = RESULTS / "defaults-choice.jsonl", RESULTS / "defaults.jsonl"
BASELINES = ("mlp", "gcn", "sgformer")


def read_records(path: Path) -> list[dict[str, Any]]:
    """All records of a file; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def place_of(name: str, cache: Path) -> Path:
    """The graph directory, written if it is not there."""
    place = cache / name.replace(" ", "-").replace(",", "")
    if not place.exists():
        write_graph(name, Path(os.environ["POLYFORMER_DATA"]), place)
    return place


def train(place: Path, model: str, split: int, settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """One run with a limit on its seconds; its result, or what there is when the limit ends it."""
    from polyformer.errors import TrainingInterrupted
    from polyformer.reporter import Reporter
    from polyformer.runs.config import write_epochs
    from polyformer.runs.execution import execute_run
    from polyformer.runs.request import RunRequest
    from polyformer.runs.run import Run

    class Limit(Reporter):
        def should_stop(self) -> bool:
            return time.monotonic() - started > seconds

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        request = RunRequest(data=str(place), model=model, split=split, settings=settings)
        out, limited = Path(folder) / "run", False
        try:
            result = execute_run(request, out, reporter=Limit())
        except TrainingInterrupted:
            limited = True
            write_epochs(out, len(Run(out).metrics))
            result = execute_run(Run(out).request, out, resume=True)
    return {
        "val": result["val"],
        "test": result["test"],
        "metric": result["metric"],
        "best_epoch": result["best_epoch"],
        "epochs": result["epochs"],
        "parameters": result["parameters"],
        "seconds": round(time.monotonic() - started, 2),
        "limited": limited,
        **({"trials": result["trials"]} if "trials" in result else {}),
    }


def race(place: Path, model: str, split: int, settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """``--model auto`` with a budget of so many seconds; its result and which model was kept."""
    from polyformer.runs.auto.search import execute_auto
    from polyformer.runs.request import RunRequest

    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        request = RunRequest(data=str(place), model=model, split=split, settings=settings)
        result = execute_auto(request, Path(folder) / "run", budget=seconds)
    [kept] = [row["name"] for row in result["auto"]["leaderboard"] if row["status"] == "best"]
    names = ("val", "test", "metric", "best_epoch", "epochs", "parameters")
    about = {"kept": kept, "budget": seconds, "seconds": round(time.monotonic() - started, 2)}
    return {**{name: result[name] for name in names}, **about}


def wanted_graphs(names: str | None, half: str | None) -> list[str]:
    """Names that were asked for, or all of a half."""
    if names is not None:
        return names.split(";")
    return [name for name, study in GRAPHS.items() if half in (None, study.half)]


def append(path: Path, record: dict[str, Any]) -> None:
    """Add a line; what was written before stays whatever happens."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def choose(arguments: argparse.Namespace) -> None:
    """Score settings on validation nodes of the development half; several configurations by note, or one."""
    given = json.loads(arguments.settings)
    several = bool(given) and all(isinstance(value, dict) for value in given.values())
    for note, settings in (given if several else {arguments.note: given}).items():
        choose_one(note, settings, arguments)
    show(arguments)


def choose_one(note: str, settings: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Score one configuration."""
    key = json.dumps([note, settings], sort_keys=True)
    known = {(r["graph"], r["model"], r["key"], r["split"]) for r in read_records(CHOICES)}
    for name in wanted_graphs(arguments.graphs, DEVELOPMENT):
        assert GRAPHS[name].half == DEVELOPMENT, "settings are chosen on the development half"
        for split in range(arguments.splits):
            if (name, arguments.model, key, split) in known:
                continue
            result = train(
                place_of(name, arguments.cache), arguments.model, SPLITS + split, settings, arguments.seconds
            )
            result["held_out"] = result.pop("test")
            record = {"graph": name, "model": arguments.model, "key": key, "note": note}
            append(CHOICES, {**record, "settings": settings, "split": split, **result})


def trees(arguments: argparse.Namespace) -> None:
    """Score boosted trees on a node's tokens beside the other models, on validation nodes of the development half."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    from polyformer.metrics import METRICS
    from polyformer.runs.data import load_task
    from polyformer.runs.request import RunRequest
    from polyformer.tokens import compute_tokens

    for name in wanted_graphs(arguments.graphs, DEVELOPMENT):
        for split in range(arguments.splits):
            started = time.monotonic()
            request = RunRequest(data=str(place_of(name, arguments.cache)), split=SPLITS + split)
            task, nodes = load_task(request)
            tokens = compute_tokens(task.graph, "legendre", order=3).flatten(1).numpy()
            model = HistGradientBoostingClassifier(learning_rate=0.05, max_leaf_nodes=15, random_state=0)
            model.fit(tokens[nodes.train], task.labels[nodes.train])
            score = METRICS[task.metric](model.predict_proba(tokens[nodes.test]), task.labels[nodes.test])
            record = {"graph": name, "model": "trees", "key": "[]", "note": "order 3", "settings": {}, "split": split}
            append(CHOICES, {**record, "held_out": score, "seconds": round(time.monotonic() - started, 2)})
    show(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """Score defaults on the real splits."""
    known = {(r["graph"], r["contender"], r["split"]) for r in read_records(MEASURED)}
    for name in wanted_graphs(arguments.graphs, arguments.half):
        for contender in arguments.models.split(","):
            model = contender.partition(":")[0]
            for split in range(arguments.splits):
                if (name, contender, split) in known:
                    continue
                settings = json.loads(arguments.settings)
                run = race if model == "auto" else train
                result = run(place_of(name, arguments.cache), model, split, settings, arguments.seconds)
                append(MEASURED, {"graph": name, "contender": contender, "split": split, **result})
                print(f"{name} {contender} {split}: {result['seconds']} s", flush=True)


def by_configuration(records: list[dict[str, Any]]) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Model, note and records of every configuration that was tried."""
    for model, note in dict.fromkeys((r["model"], r["note"]) for r in records):
        yield model, note, [r for r in records if (r["model"], r["note"]) == (model, note)]


def show(arguments: argparse.Namespace) -> None:
    """Print mean validation scores in percent, and the paired difference to the best baseline on the same splits."""
    records = read_records(CHOICES)
    graphs = [name for name in GRAPHS if any(r["graph"] == name for r in records)]
    baselines = {m: {(r["graph"], r["split"]): r["held_out"] for r in records if r["model"] == m} for m in BASELINES}
    print("columns: " + ", ".join(graphs))
    for model, note, rows in by_configuration(records):
        cells, gaps = [], []
        for name in graphs:
            scores = {r["split"]: r["held_out"] for r in rows if r["graph"] == name}
            cells.append(f"{100 * np.mean(list(scores.values())):5.1f}" if scores else "    -")
            rivals = [
                np.mean([scores[split] - others[name, split] for split in scores])
                for others in baselines.values()
                if scores and all((name, split) in others for split in scores)
            ]
            gaps += [min(rivals)] if rivals else []
        gap = f"{100 * np.mean(gaps):+5.2f} worst {100 * min(gaps):+5.1f} ({len(gaps)})" if gaps else ""
        seconds = np.mean([r.get("seconds", r.get("cpu_seconds", 0.0)) for r in rows])
        print(f"{f'{model} {note}'[:32]:32s} {' '.join(cells)}  gap {gap}  {seconds:.1f} s")


def main() -> None:
    """Parse, then do one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["choose", "trees", "measure", "show"])
    parser.add_argument("--model", default="polyformer")
    parser.add_argument("--models", default="mlp,gcn,sgformer,polyformer,gcn-tuned")
    parser.add_argument("--settings", default="{}")
    parser.add_argument("--note", default="defaults")
    parser.add_argument("--graphs", help="names, separated by semicolons")
    parser.add_argument("--half")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--seconds", type=float, default=120.0, help="a run is ended after so many")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/defaults"))
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    {"choose": choose, "trees": trees, "measure": measure, "show": show}[arguments.what](arguments)


if __name__ == "__main__":
    main()
