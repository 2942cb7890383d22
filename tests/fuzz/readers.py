"""Every reader: how a good input of it is made, and how it is read."""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp
import torch

import polyformer as pf
from polyformer.cli.node_choice import select_nodes
from polyformer.datasets import DATASETS
from polyformer.experiments.plan import open_experiment
from polyformer.experiments.records import Records
from polyformer.files import array_digest, read_json, read_small
from polyformer.importing import import_graph, open_source
from polyformer.models.polyformer import PolyFormerSettings
from polyformer.presets import load_preset
from polyformer.registry import parse_spec
from polyformer.runs.directory import read_checkpoint
from polyformer.runs.metrics_file import drop_metrics_after
from polyformer.runs.run import Run
from polyformer.runs.saved_model import read_weights
from polyformer.settings import split_settings
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.tokens import write_tokens
from polyformer.training.settings import TrainingSettings
from polyformer.verification import check_epochs, verify_directory
from tests.datasets.small_files import WRITERS, write_small
from tests.fuzz import commands
from tests.fuzz import more_readers as more
from tests.importing.example import make_example

__all__ = ["COMMANDS", "READERS", "Reader"]

OLD = Path(__file__).parents[1] / "old_versions" / "version_0_1"


@dataclass(frozen=True)
class Reader:
    """Attributes:
    make: writes a good input into an empty folder.
    read: reads the folder; what it returns is compared where ``sealed``.
    sealed: whether every change must be refused or be without effect, because all content is hashed.
    reseal: writes hashes anew that fit the damaged input, as an attacker does.
    make_other: writes another good input of the same layout, whose files may come into the first.
    """

    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    sealed: bool = False
    reseal: Callable[[Path], None] | None = None
    make_other: Callable[[Path], Any] | None = None


def small_task(seed: int = 0) -> Task:
    random = np.random.default_rng(seed)
    graph = pf.Graph(random.integers(0, 40, (2, 90)), random.normal(size=(40, 3)), 40, random.random(90))
    splits = [Split(np.arange(16), np.arange(16, 28), np.arange(28, 40))]
    return Task(
        "small", graph, (np.arange(40) + seed) % 3, splits, class_names=("a", "b", "c"), ids=np.arange(40) + 100 + seed
    )


def _graph(folder: Path, seed: int = 0) -> None:
    small_task(seed).save(folder / "graph")


def _stored(folder: Path, seed: int = 0) -> None:
    write_tokens(small_task(seed).graph, folder / "tokens", "optimal", 2)


def read_task(folder: Path) -> str:
    return _content(Task.load(folder / "graph"))


def _content(task: Task) -> str:
    graph = task.graph
    arrays = [np.array(part) for part in (graph.indptr, graph.indices, task.labels)]
    arrays += [np.array(part) for split in task.splits for part in (split.train, split.val, split.test)]
    arrays += [np.array(part) for part in (graph.weights, graph.features, task.ids) if isinstance(part, np.ndarray)]
    about = (task.name, task.metric, task.protocol, task.class_names, task.columns, task.preprocessing)
    return f"{about} {array_digest(*arrays)}"


def read_tokens(folder: Path) -> str:
    stored = pf.open_tokens(folder / "tokens")
    parts = [stored[:].numpy()] + ([] if stored.nodes is None else [stored.nodes])
    recurrence = stored.recurrence
    parts += [] if recurrence is None else [np.asarray(part) for part in vars(recurrence).values()]
    return f"{stored.basis.spec} {array_digest(*parts)}"


def read_run(folder: Path) -> str:
    run = Run.open(folder / "run")
    check_epochs(run)
    run.request.resolve_settings()
    model, calibration = read_weights(folder / "run", run.card)
    state = read_checkpoint(folder / "run")
    tensors = [state.parameters[name].numpy() for name in sorted(state.parameters)]
    tensors += [part.numpy() for part in model.state_dict().values()]
    digest = array_digest(*(np.atleast_1d(part) for part in tensors))
    return (
        f"{run.config} {run.result} {run.metrics} {run.facts} {calibration} {state.epoch} {state.best_score} {digest}"
    )


def read_classifier(folder: Path) -> str:
    clf = pf.PolyFormerClassifier.load(folder / "classifier")
    return f"{clf.settings} {clf.seed} {array_digest(clf.predict_proba(small_task().graph))}"


def read_unfinished(folder: Path) -> None:
    write_tokens(small_task().graph, folder / "t", "chebyshev", 2)


def make_unfinished(folder: Path) -> None:
    from polyformer.stores import writer

    original = writer.TokenDirectoryWriter.finish
    writer.TokenDirectoryWriter.finish = lambda *_, **__: (_ for _ in ()).throw(RuntimeError)  # type: ignore[method-assign]
    try:
        write_tokens(small_task().graph, folder / "t", "chebyshev", 2)
    except RuntimeError:
        pass
    finally:
        writer.TokenDirectoryWriter.finish = original  # type: ignore[method-assign]


def _old(name: str) -> Callable[[Path], Any]:
    return lambda folder: shutil.copytree(OLD / name, folder / name.split("-")[0])


def _source(name: str, write: Callable[[Path], Any]) -> Reader:
    """A file or folder of a public format: opened in memory and imported, in turn."""

    def make(folder: Path) -> None:
        (folder / "in").mkdir()
        write(folder / "in" / name if name else folder / "in")

    def read(folder: Path) -> str:
        place = folder / "in" / name if name else folder / "in"
        task = open_source(place)
        import_graph(place, folder / "graph")
        return _content(task)

    return Reader(make, read)


def _arrays(path: Path) -> None:
    edges = np.random.default_rng(0).integers(0, 30, (80, 2))
    masks = {f"{part}_masks": np.arange(30) % 3 == i for i, part in enumerate(("train", "val", "test"))}
    np.savez(path, edges=edges, node_features=np.ones((30, 2), np.float32), node_labels=np.arange(30) % 2, **masks)


def _adjacency() -> sp.csr_matrix:
    return sp.random(30, 30, 0.1, "csr", np.float32, 0)


def _benchmark(path: Path) -> None:
    parts: dict[str, Any] = {"labels": np.arange(30) % 3}
    for name, matrix in (("adj", _adjacency()), ("attr", sp.random(30, 5, 0.3, "csr", np.float32, 1))):
        parts |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(path, **parts)


def _torch(path: Path) -> None:
    edges = torch.randint(0, 30, (2, 80), generator=torch.Generator().manual_seed(0))
    torch.save({"edge_index": edges, "x": torch.ones(30, 2), "y": torch.arange(30) % 2, "num_nodes": 30}, path)


def _matlab(path: Path) -> None:
    scipy.io.savemat(path, {"A": sp.csc_matrix(_adjacency()), "x": np.ones((30, 2)), "label": np.arange(30) % 2})


def _ogb(path: Path) -> None:
    raw, split = path / "raw", path / "split" / "time"
    raw.mkdir()
    split.mkdir(parents=True)
    random = np.random.default_rng(0)
    tables = {
        raw / "edge": random.integers(0, 30, (80, 2)),
        raw / "num-node-list": np.array([[30]]),
        raw / "node-feat": random.normal(size=(30, 2)).round(3),
        raw / "node-label": np.arange(30)[:, None] % 2,
        **{split / part: np.arange(30)[i::3, None] for i, part in enumerate(("train", "valid", "test"))},
    }
    for place, rows in tables.items():
        with gzip.open(f"{place}.csv.gz", "wt") as file:
            file.write("\n".join(",".join(map(str, row)) for row in rows.tolist()) + "\n")


def _csv(path: Path) -> None:
    example = make_example()
    pacsv.write_csv(example.edges(weighted=True), path / "edges.csv")
    pacsv.write_csv(example.nodes(), path / "nodes.csv")


def _parquet(path: Path) -> None:
    example = make_example("wide")
    pq.write_table(example.edges(weighted=True), path / "edges.parquet")
    pq.write_table(example.nodes(), path / "nodes.parquet")


def _family(kind: type) -> Reader:
    dataset = next(DATASETS[name] for name in DATASETS if type(DATASETS[name]) is kind)

    def read(folder: Path) -> None:
        paths = {
            file.path: next(place for name in (file.path, *file.also) if (place := folder / name).exists())
            for file in dataset.files
            if any((folder / name).is_file() for name in (file.path, *file.also))
        }
        if len(paths) == len(dataset.files):
            contents = dataset.read(paths)
            Task("x", contents.graph, contents.labels, contents.splits.get("fixed", []))

    return Reader(lambda folder: write_small(dataset, folder), read)


def make_study(folder: Path) -> None:
    from polyformer.tuning.journal import open_study

    study = open_study(folder / "study.journal")
    study.set_user_attr("about", {"data": "x"})
    trial = study.ask()
    trial.suggest_categorical("lr", [0.1, 0.2])
    study.tell(trial, 0.5)


def read_study(folder: Path) -> None:
    from polyformer.tuning.journal import open_study
    from polyformer.tuning.trials import ended_trials

    study = open_study(folder / "study.journal")
    _ = study.user_attrs, [trial.params for trial in ended_trials(study)]


def _text(name: str, content: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(content)


def _text_of(path: Path) -> str:
    """The text of an option, which a file stands for here; no option is longer than a system takes."""
    try:
        return read_small(path, 1 << 21).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def read_settings(folder: Path) -> None:
    for line in _text_of(folder / "settings").splitlines():
        _, options = parse_spec(f"x:{line}")
        split_settings([PolyFormerSettings, TrainingSettings], options)


def read_spec(folder: Path) -> None:
    spec = _text_of(folder / "spec").strip()
    if spec and spec.count("9") < 8:  # a large board is good, and takes long
        pf.load_dataset(spec)


def _old_record(folder: Path) -> None:
    shutil.copytree(OLD / "records" / "table5-baselines", folder / "plan")


def _records(folder: Path) -> None:
    _old_record(folder)
    Records(folder).fold()


def read_plan(folder: Path) -> None:
    open_experiment(str(folder / "plan.toml"))


def read_preset(folder: Path) -> None:
    load_preset(str(folder / "preset.csv"), "citeseer")


def read_nodes(folder: Path) -> None:
    for name in ("nodes.npy", "nodes.txt"):
        if (folder / name).is_file():
            select_nodes(str(folder / name), np.arange(50))


def make_nodes(folder: Path) -> None:
    np.save(folder / "nodes.npy", np.arange(20))
    (folder / "nodes.txt").write_text("1\n5\n7\n")


def _trained(folder: Path, shift: float = 0.0) -> None:
    """A run of today's format: the old one, written again.

    Args:
        shift: what is added to every parameter and score, for the run of another seed.
    """
    from polyformer.files import RUN, read_tensors, run_identity, write_json, write_tensors
    from polyformer.files.run_schemas import CHECKPOINT, RESULT, RUN_CONFIG, WEIGHTS

    shutil.copytree(OLD / "run", folder / "run")
    place = folder / "run"
    config, result = read_json(place / "config.json", RUN_CONFIG), read_json(place / "result.json", RESULT)
    if shift:
        config["seed"] += 1
        result |= {"test": shift, "val": result["val"] + shift}
        lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
        moved_lines = [json.dumps(line | {"val": line["val"] + shift}) for line in lines]
        (place / "metrics.jsonl").write_text("\n".join(moved_lines) + "\n")
    write_json(place / "config.json", config, RUN_CONFIG)
    write_json(place / "result.json", result | {RUN: run_identity(place)}, RESULT)
    for file, schema in (("model.safetensors", WEIGHTS), ("checkpoint/state.safetensors", CHECKPOINT)):
        tensors, about = read_tensors(place / file, schema)
        moved = {name: part + shift if part.is_floating_point() else part for name, part in tensors.items()}
        more_about = {RUN: run_identity(place)} if schema is WEIGHTS else {"best_score": about["best_score"] + shift}
        write_tensors(place / file, moved if shift else tensors, about | more_about)
    drop_metrics_after(place, 100)


def _command(command: str, parts: str) -> Reader:
    """A verb of the command line that is given damaged parts of the world of all commands."""

    def read(folder: Path) -> None:
        commands.complete(folder)
        commands.run_command(shlex.split(command), folder)

    return Reader(lambda folder: commands.make_world(folder, parts), read)


_PLAN = Path(pf.__file__).parent / "experiments" / "plans" / "table4.toml"
_PRESET = Path(pf.__file__).parent / "presets" / "fast.csv"

READERS: dict[str, Reader] = {
    "graph directory": Reader(_graph, read_task, sealed=True, make_other=lambda folder: _graph(folder, 1)),
    "graph directory of version 0.1": Reader(_old("graph"), read_task),
    "token directory": Reader(_stored, read_tokens, sealed=True, make_other=lambda folder: _stored(folder, 1)),
    "token directory of version 0.1": Reader(_old("tokens"), read_tokens),
    "optimal tokens of version 0.1": Reader(_old("tokens-optimal"), read_tokens),
    "unfinished tokens": Reader(make_unfinished, read_unfinished),
    "run directory": Reader(_trained, read_run, sealed=True, make_other=lambda folder: _trained(folder, 0.5)),
    "run directory of version 0.1": Reader(_old("run"), read_run),
    "classifier of version 0.1": Reader(_old("classifier"), read_classifier),
    "verified graph": Reader(_graph, lambda folder: verify_directory(folder / "graph")),
    "changed graph": Reader(more.make_changed, more.read_changed_graph, sealed=True),
    "changed tokens": Reader(more.make_changed, more.read_changed_tokens, sealed=True),
    "resealed graph": Reader(
        _graph, more.use_graph, reseal=more.reseal_data("graph"), make_other=lambda folder: _graph(folder, 1)
    ),
    "resealed tokens": Reader(
        _stored, more.use_tokens, reseal=more.reseal_data("tokens"), make_other=lambda folder: _stored(folder, 1)
    ),
    "resealed changed graph": Reader(more.make_changed, more.read_changed_graph, reseal=more.reseal_data("graph")),
    "resealed changed tokens": Reader(more.make_changed, more.use_tokens, reseal=more.reseal_layers),
    "resealed run": Reader(
        _trained, more.use_run, reseal=more.reseal_run, make_other=lambda folder: _trained(folder, 0.5)
    ),
    "pretrained network": Reader(
        _trained, lambda folder: pf.PolyFormer.from_pretrained(folder / "run"), reseal=more.reseal_run
    ),
    "change tables": Reader(more.write_change_tables, more.read_change_tables),
    "new nodes": Reader(more.make_new_nodes, more.read_new),
    "baseline of a run": Reader(more.make_drift, more.read_drift),
    "race of models": Reader(more.make_race, more.read_race),
    "raw pairs": _source("edges.npy", lambda path: np.save(path, np.random.default_rng(0).integers(0, 30, (80, 2)))),
    "npz arrays": _source("a.npz", _arrays),
    "scipy npz": _source("a.npz", lambda path: sp.save_npz(path, _adjacency())),
    "gnn-benchmark npz": _source("a.npz", _benchmark),
    "torch file": _source("a.pt", _torch),
    "matlab file": _source("a.mat", _matlab),
    "matrix market": _source("a.mtx", lambda path: scipy.io.mmwrite(path, _adjacency())),
    "ogb folder": _source("", _ogb),
    "csv tables": _source("", _csv),
    "parquet tables": _source("", _parquet),
    **{f"family {kind.__name__}": _family(kind) for kind in WRITERS if kind.__name__ != "OgbBinary"},
    "node choice": Reader(make_nodes, read_nodes),
    "study": Reader(make_study, read_study),
    "record of version 0.1": Reader(_old_record, lambda folder: Records(folder).of_plan("plan").read()),
    "records": Reader(_records, lambda folder: Records(folder).of_plan("plan").read()),
    "plan": Reader(lambda folder: shutil.copy(_PLAN, folder / "plan.toml"), read_plan),
    "preset": Reader(lambda folder: shutil.copy(_PRESET, folder / "preset.csv"), read_preset),
    "settings": Reader(
        _text("settings", "order=4,heads=2,hidden_channels=8,lr=0.01,dropout=0.5,batch_size=full\n"), read_settings
    ),
    "spec": Reader(_text("spec", "minefield:width=8,height=9,seed=3\n"), read_spec),
}

COMMANDS: dict[str, Reader] = {
    **{f"command {name}": _command(*about) for name, about in commands.COMMANDS.items()},
    **{
        f"options of {verb}": Reader(commands.write_options, commands.read_options(verb))
        for verb in commands.OPTION_VERBS
    },
}
"""The same through the command line, at a tenth of a second to a second an input."""
