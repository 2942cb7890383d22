"""A run: data and settings in, a run directory out; the same function for a new run and for one that goes on."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.datasets import load_source
from polyformer.errors import FileCorrupt, InvalidParameter, TrainingInterrupted
from polyformer.machine import peak_memory, usable_memory
from polyformer.models import MODELS, NodeModel
from polyformer.presets import load_preset
from polyformer.progress import Share, Stages
from polyformer.registry import parse_spec
from polyformer.settings import split_settings
from polyformer.splits import Split, hold_out
from polyformer.tasks import Task, squared_error
from polyformer.tokens import open_tokens
from polyformer.training.checkpoint import Checkpoint
from polyformer.training.loop import EpochRecord, Observer, Trainer, derive_seed, workload_of
from polyformer.training.run_directory import RunDirectory
from polyformer.training.saved_model import ModelCard, save_weights
from polyformer.training.settings import TrainingSettings

__all__ = ["RunRequest", "choose_device", "describe_task", "execute_run", "load_task", "versions"]


@dataclass(frozen=True)
class RunRequest:
    """What the user asked for; with the data it determines the run.

    Attributes:
        data: a data set's name or a path.
        settings: settings of the model and of the training that differ from preset and defaults.
        tokens: a token directory to train from.
        memory: bytes that may be used; 80 % of what is free at the start by default.
    """

    data: str = "minefield"
    model: str = "polyformer"
    data_root: str | None = None
    protocol: str | None = None
    split: int = 0
    seed: int = 0
    device: str = "auto"
    preset: str | None = None
    settings: dict[str, Any] | None = None
    tokens: str | None = None
    memory: int | None = None

    def asked_settings(self) -> dict[str, Any]:
        """Those of the preset and those asked for."""
        asked = dict(self.settings or {})
        if self.preset is None:
            return asked
        return load_preset(self.preset, parse_spec(self.data)[0], asked.get("basis"), self.model) | asked

    def resolve_settings(self) -> dict[str, Any]:
        """Every setting: defaults, those of the model, of the token directory, of the preset, and those asked for."""
        kind, asked = MODELS[self.model], self.asked_settings()
        if self.tokens is not None:
            asked = _view_settings(self.tokens, self.model, kind.settings_type, asked) | asked
        parts = split_settings([kind.settings_type, TrainingSettings], {**kind.training_defaults, **asked})
        return {name: value for part in parts for name, value in asdict(part).items()}


def _view_settings(tokens: str, model: str, kind: type, asked: dict[str, Any]) -> dict[str, Any]:
    """Basis, order and self-loops of a token directory: its view, unless another basis was asked for."""
    if not {"basis", "order", "self_loops"} <= {field.name for field in fields(kind)}:
        raise InvalidParameter(f"The model '{model}' reads no tokens. Got '{tokens}'. Leave --tokens out.")
    stored = open_tokens(tokens, asked.get("basis"))
    view = {"order": stored.order, "self_loops": stored.self_loops}
    return view if "basis" in asked else view | {"basis": stored.manifest["view"]}


def versions() -> dict[str, str]:
    """Of what a result depends on."""
    packages = ("polyformer", "torch", "numpy", "scipy")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in packages}


def choose_device(device: str) -> torch.device:
    """``auto`` is CUDA where there is one."""
    if device not in ("auto", "cpu", "cuda"):
        raise InvalidParameter(f"'device' must be auto, cpu or cuda. Got '{device}'.")
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidParameter("'device' is cuda, but torch finds no CUDA device here. Use auto or cpu.")
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


def load_task(
    request: RunRequest, loading: Stages | None = None, report: Callable[[str], None] | None = None
) -> tuple[Task, Split]:
    """The task and the split of the request; validation nodes are drawn from training where there are none."""
    task = load_source(request.data, request.data_root, request.protocol, progress=loading, report=report)
    if not task.splits:
        raise InvalidParameter(f"'{request.data}' has no labelled splits, so nothing can be trained on it.")
    if not 0 <= request.split < len(task.splits):
        raise InvalidParameter(
            f"'split' must lie in 0..{len(task.splits) - 1} for '{request.data}'. Got {request.split}."
        )
    metric = request.resolve_settings()["metric"]
    if metric != "default":
        task = replace(task, metric=metric)
    split = task.splits[request.split]
    if len(split.val) == 0:
        train, val = hold_out(split.train, task.labels, seed=request.seed)
        split = Split(train, val, split.test)
    return task, split


def describe_task(task: Task, split: Split) -> dict[str, Any]:
    """The facts about the data that the run's record keeps."""
    return {
        "name": task.name,
        "protocol": task.protocol,
        "fingerprint": task.graph.fingerprint,
        "nodes": task.graph.num_nodes,
        "edges": task.graph.num_edges,
        "features": task.graph.num_features,
        "classes": task.num_classes,
        "train": len(split.train),
        "val": len(split.val),
        "test": len(split.test),
    }


def execute_run(
    request: RunRequest,
    out: Path,
    *,
    resume: bool = False,
    loading: Stages | None = None,
    report: Callable[[str], None] | None = None,
    announce: Callable[[dict[str, Any]], None] | None = None,
    progress: Share | None = None,
    observers: list[Observer] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train and write the run directory ``out``; returns what is in its ``result.json``.

    Args:
        resume: ``out`` exists; go on from its checkpoint. A finished run gives its result at once.
        loading: is told how far downloading and reading the data is.
        report: is told what was taken as what in the user's own files, and what is kept on disk.
        announce: is told the facts about data, split and settings before the work starts.
        progress: is told how far the preparation of tokens is.
        observers: are told after every epoch.
        should_stop: asked after every epoch; True saves and raises :class:`TrainingInterrupted`.
    """
    run = RunDirectory.open(out) if resume else None
    if run is not None and run.result is not None:
        return run.result
    task, split = load_task(request, loading, report)
    card = ModelCard(
        request.model,
        request.resolve_settings(),
        task.graph.num_features,
        task.num_classes,
        task.objective.name,
        task.metric,
        None if task.class_names is None else list(task.class_names),
    )
    model = card.build(derive_seed(request.seed, 0))  # settings that do not fit are refused before anything is written
    facts = describe_task(task, split)
    # Where tokens live decides in which order they are visited: a run that goes on decides as it did at first.
    memory = usable_memory() if request.memory is None else request.memory
    request = replace(request, memory=memory if run is None else run.config["memory"])
    if run is None:
        config = {"format": 1, **asdict(request), "settings": card.settings, "card": card.to_json(), "task": facts}
        run = RunDirectory.create(out, config | {"versions": versions()})
    elif run.config["task"]["fingerprint"] != facts["fingerprint"]:
        raise FileCorrupt(f"The data '{request.data}' has changed since the run '{out}' was started. Start a new run.")
    if announce is not None:
        announce({**facts, "metric": task.metric, "split": request.split, "run": str(out)})
    with run.locked():
        return _train(run, request, card, model, task, split, report, progress, observers or [], should_stop)


def _train(
    run: RunDirectory,
    request: RunRequest,
    card: ModelCard,
    model: NodeModel,
    task: Task,
    split: Split,
    report: Callable[[str], None] | None,
    progress: Share | None,
    observers: list[Observer],
    should_stop: Callable[[], bool],
) -> dict[str, Any]:
    started, began = time.monotonic(), time.process_time()
    model.to(choose_device(request.device))
    training = card.training.resolve(len(split.train), task.graph.num_features)
    tokens = None if request.tokens is None else Path(request.tokens)
    workload = workload_of(split, training, request.memory, tokens, run.tokens, report)
    model.bind(task.graph, workload, progress)
    prepared, prepared_cpu = time.monotonic() - started, time.process_time() - began
    done = Checkpoint.load(run.checkpoint).epoch if run.checkpoint.exists() else 0
    run.drop_metrics_after(done)
    began = time.process_time()
    with run.metrics_writer() as write:

        def observe(record: EpochRecord, best_epoch: int, best_score: float) -> None:
            write(record)
            for observer in observers:
                observer(record, best_epoch, best_score)

        trainer = Trainer(
            model,
            card.reader,
            card.metric,
            task.labels,
            split,
            training,
            seed=request.seed,
            checkpoint=run.checkpoint,
            observer=observe,
            should_stop=should_stop,
        )
        try:
            trainer.run()
        except TrainingInterrupted as error:
            save_weights(run.path, trainer.best_parameters)
            raise TrainingInterrupted(
                f"{error} Nothing is lost: continue with polyformer train --resume --out {run.path}"
            ) from None
    # Epochs of an earlier process count as those of this one did.
    cpu = (time.process_time() - began) * trainer.epoch / max(trainer.epoch - done, 1)
    save_weights(run.path, trainer.best_parameters)
    test = trainer.score(torch.from_numpy(split.test), task.labels[split.test]) if len(split.test) else None
    result = {
        "metric": card.metric,
        "val": trainer.stopping.best_score if np.isfinite(trainer.stopping.best_score) else None,
        "test": test,
        "best_epoch": trainer.stopping.best_epoch,
        "epochs": trainer.epoch,
        "seconds": round(trainer.seconds, 3),
        "preparation_seconds": round(prepared, 3),
        "cpu_seconds": round(cpu, 3),
        "preparation_cpu_seconds": round(prepared_cpu, 3),
        "peak_memory_bytes": peak_memory(),
        "batch_size": training.batch_size,
        "parameters": int(np.sum([p.numel() for p in model.parameters()])),
        "data": request.data,
        "protocol": task.protocol,
        "split": request.split,
        "seed": request.seed,
        "model": request.model,
        **model.describe(),
        "versions": versions(),
    }
    if task.is_regression and test is not None:
        result["squared_error"] = squared_error(test, task.labels[split.test])
    run.write_result(result)
    return result
