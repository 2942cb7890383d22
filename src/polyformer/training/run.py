"""A run: data and settings in, a run directory out; the same function for a new run and for one that goes on."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer import __version__
from polyformer.errors import FileCorrupt, InvalidParameter, TrainingDiverged, TrainingInterrupted
from polyformer.evaluation import Verdict, data_warnings, guess, judge
from polyformer.files import finite
from polyformer.machine import peak_memory, usable_memory
from polyformer.metrics import METRICS, squared_error
from polyformer.models import NodeModel
from polyformer.models.token_model import TokenModel
from polyformer.progress import Share, Stages
from polyformer.splits import Split
from polyformer.tasks import Task, label_units
from polyformer.training.checkpoint import Checkpoint
from polyformer.training.distributed import ALONE, Workers
from polyformer.training.loop import (
    CheckpointRegistry,
    EpochRecord,
    Observer,
    Trainer,
    check_optimizer,
    derive_seed,
    workload_of,
)
from polyformer.training.request import RunRequest, describe_task, load_task
from polyformer.training.run_directory import RunDirectory, removing_failed_start
from polyformer.training.saved_model import ModelCard, save_weights

__all__ = [
    "PreparedRun",
    "RunRequest",
    "choose_device",
    "describe_task",
    "execute_run",
    "finished_result",
    "load_task",
    "prepare_run",
    "versions",
]

LOST_SECONDS = 10.0
"""How long a worker that was started again waits for the one it replaces to be gone."""


def versions() -> dict[str, str]:
    """Of what a result depends on; ``source`` tells this package's own code, which changes between versions."""
    others = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "scipy")}
    return {"python": platform.python_version(), "polyformer": __version__, **others, "source": _source_digest()}


@cache
def _source_digest() -> str:
    digest, folder = hashlib.blake2b(digest_size=6), Path(__file__).parents[1]
    for path in sorted(path for ending in ("py", "cpp", "h", "csv") for path in folder.rglob(f"*.{ending}")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def choose_device(device: str) -> torch.device:
    """``auto`` is CUDA where there is one."""
    if device not in ("auto", "cpu", "cuda"):
        raise InvalidParameter(f"'device' must be auto, cpu or cuda. Got '{device}'.")
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidParameter("'device' is cuda, but torch finds no CUDA device here. Use auto or cpu.")
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class PreparedRun:
    """A run whose directory is there: what it is about to train, and on what."""

    run: RunDirectory
    request: RunRequest
    card: ModelCard
    model: NodeModel
    task: Task
    split: Split

    @property
    def facts(self) -> dict[str, Any]:
        """What is announced before the work starts."""
        about = describe_task(self.task, self.split)
        return {**about, "metric": self.task.metric, "split": self.request.split, "run": str(self.run.path)}


def finished_result(out: Path) -> dict[str, Any] | None:
    """The result of the run that is to go on, if it has one already."""
    return RunDirectory.open(out).result


def prepare_run(
    request: RunRequest,
    out: Path,
    *,
    resume: bool = False,
    loading: Stages | None = None,
    report: Callable[[str], None] | None = None,
    workers: Workers = ALONE,
    num_workers: int = 1,
) -> PreparedRun:
    """Read the data, refuse what cannot be trained, and make the run directory or open it.

    Args:
        workers: the processes that all prepare this run.
        num_workers: how many will train.
    """

    def read() -> tuple[Task, Split, ModelCard, NodeModel]:
        started = ModelCard.from_json(RunDirectory.open(out).config["card"]) if resume else None
        task, split = load_task(request, loading, report, started)
        card = ModelCard(
            request.model,
            request.resolve_settings(),
            task.graph.num_features,
            task.num_classes,
            task.objective.name,
            task.metric,
            None if task.class_names is None else list(task.class_names),
            task.columns,
            scaling=task.graph.scaling,
        )
        if task.is_regression and card.training.targets == "standard":
            card = replace(card, units=label_units(task.labels[split.train]))
        choose_device(request.device)
        model = card.build(derive_seed(request.seed, 0))
        check_divisible(model, request.model, num_workers)
        training = card.training.resolve(len(split.train), task.graph.num_features)
        check_optimizer(model, training)
        if request.tokens is not None and isinstance(model, TokenModel):
            model.check_tokens(task.graph, workload_of(split, training, request.memory, Path(request.tokens)))
        return task, split, card, model

    # Settings that do not fit are refused before anything is written.
    task, split, card, model = workers.in_turn(read)
    facts = describe_task(task, split)

    def make() -> RunRequest:
        # Where tokens live decides in which order they are visited: a run that goes on decides as it did at first,
        # unless another bound on memory is asked for.
        if resume:
            config = RunDirectory.open(out).config
            before = config["task"]
            if any(before[name] != facts[name] for name in ("fingerprint", "labels") if name in before):
                raise FileCorrupt(
                    f"The data '{request.data}' has changed since the run '{out}' was started. Start a new run."
                )
            if ModelCard.from_json(config["card"]).units != card.units:
                raise FileCorrupt(
                    f"The run '{out}' was started by a version that learned labels in other units. Start a new run."
                )
            memory = config["memory"] if request.memory is None else request.memory
            RunDirectory(out).update_memory(memory)
            return replace(request, memory=memory)
        fixed = replace(request, memory=usable_memory() if request.memory is None else request.memory)
        config = {"format": 1, **asdict(fixed), "settings": card.settings, "card": card.to_json(), "task": facts}
        RunDirectory.create(out, config | {"versions": versions()})
        return fixed

    return PreparedRun(RunDirectory(out), workers.first(make), card, model, task, split)


def check_divisible(model: NodeModel, name: str, num_workers: int) -> None:
    """Refuse a model that several workers would not train faster, or not to the same result."""
    if num_workers == 1 or model.divisible:
        return
    if isinstance(model, TokenModel):
        raise InvalidParameter(
            f"'token_route' must not be projected with {num_workers} workers: every step would propagate the whole "
            f"graph on each of them. Use auto, stored or streamed."
        )
    raise InvalidParameter(
        f"The model '{name}' needs the whole graph, or the whole batch, in every step, so {num_workers} workers cannot "
        f"share it. Train it with one, or choose a model on tokens, such as polyformer."
    )


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
    workers: Workers = ALONE,
    registry: CheckpointRegistry | None = None,
    keep_freed_memory: bool = False,
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
        workers: the processes that train together, each of which calls this with the same request; the first writes.
        registry: keeps checkpoints besides the run directory, and says from which to go on.
        keep_freed_memory: let the allocator of this process keep what training frees, which makes wide models faster;
            for a process that only trains, as those of the command line do.
    """
    result = workers.first(lambda: finished_result(out) if resume else None)
    if result is not None:
        return result
    with contextlib.ExitStack() as stack:
        if workers.rank == 0:
            stack.enter_context(removing_failed_start(out))
        prepared = prepare_run(
            request, out, resume=resume, loading=loading, report=report, workers=workers, num_workers=workers.count
        )
        if announce is not None:
            announce(prepared.facts)
        patience = 0.0 if registry is None else LOST_SECONDS
        workers.first(lambda: stack.enter_context(prepared.run.locked(patience)))
        return _train(prepared, report, progress, observers or [], should_stop, workers, registry, keep_freed_memory)


def _train(
    prepared: PreparedRun,
    report: Callable[[str], None] | None,
    progress: Share | None,
    observers: list[Observer],
    should_stop: Callable[[], bool],
    workers: Workers,
    registry: CheckpointRegistry | None,
    keep_freed_memory: bool,
) -> dict[str, Any]:
    run, request, card, model = prepared.run, prepared.request, prepared.card, prepared.model
    task, split = prepared.task, prepared.split
    started, began = time.monotonic(), time.process_time()
    model.to(workers.each(lambda: choose_device(request.device)))
    training = card.training.resolve(len(split.train), task.graph.num_features)
    tokens = None if request.tokens is None else Path(request.tokens)
    workload = workload_of(split, training, request.memory, tokens, run.tokens, report, workers)

    def bind() -> None:
        model.bind(task.graph, workload, progress)
        check_divisible(model, request.model, workers.count)

    workers.in_turn(bind)  # what is kept on disk is computed once
    preparation = {
        "preparation_seconds": round(time.monotonic() - started, 3),
        "preparation_cpu_seconds": round(time.process_time() - began, 3),
    }

    def go_on() -> None:
        if registry is not None and registry.latest is not None:
            run.replace_checkpoint(registry.latest)
        run.drop_metrics_after(Checkpoint.load(run.checkpoint).epoch if run.checkpoint.exists() else 0)

    workers.first(go_on)
    writer: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    with run.metrics_writer() if workers.rank == 0 else writer as write:

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
            observer=observe if workers.rank == 0 else None,
            should_stop=should_stop,
            workers=workers,
            registry=registry,
            keep_freed_memory=keep_freed_memory,
        )
        try:
            trainer.run()
        except TrainingInterrupted as error:
            workers.first(lambda: save_weights(run.path, trainer.best_parameters))
            raise TrainingInterrupted(
                f"{error} Nothing is lost: continue with polyformer train --resume --out {run.path}"
            ) from None
        except TrainingDiverged as error:
            if trainer.stopping.best_epoch == 0:
                raise
            workers.first(lambda: save_weights(run.path, trainer.best_parameters))
            raise TrainingDiverged(f"{error} The model of epoch {trainer.stopping.best_epoch} is kept.") from None
    threshold = trainer.threshold()
    scores = trainer.scores(torch.from_numpy(split.test)) if len(split.test) else None

    def finish() -> dict[str, Any]:
        save_weights(run.path, trainer.best_parameters, threshold)
        result = _result(prepared, trainer, _judged(prepared, scores, threshold), preparation)
        run.write_result(result)
        return result

    return workers.first(finish)


def _result(
    prepared: PreparedRun, trainer: Trainer, judged: dict[str, Any], preparation: dict[str, float]
) -> dict[str, Any]:
    """What ``result.json`` holds."""
    request, task, model, stopping = prepared.request, prepared.task, prepared.model, trainer.stopping
    return {
        "metric": prepared.card.metric,
        "val": finite(stopping.best_score),
        **judged,
        "best_epoch": stopping.best_epoch,
        "epochs": trainer.epoch,
        "seconds": round(trainer.seconds, 3),
        "cpu_seconds": round(trainer.cpu_seconds, 3),
        **preparation,
        "peak_memory_bytes": peak_memory(),
        "batch_size": trainer.settings.batch_size,
        "parameters": int(np.sum([p.numel() for p in model.parameters()])),
        "data": request.data,
        "protocol": task.protocol,
        "split": request.split,
        "seed": request.seed,
        "model": request.model,
        "workers": trainer.workers.count,
        "resumed_after": trainer.resumed_after,
        **model.describe(),
        "versions": versions(),
    }


def _judged(prepared: PreparedRun, scores: np.ndarray | None, threshold: float | None) -> dict[str, Any]:
    """What ``result.json`` says about how good the model is, from its scores of the test nodes (n, C)."""
    task, split, metric = prepared.task, prepared.split, prepared.card.metric
    names = task.shown_classes
    warnings = data_warnings(task.labels, split, names)
    about: dict[str, Any] = {"test": None, "threshold": threshold}
    if scores is None:
        return about | Verdict(metric, None, {}, None, None, None).to_json() | {"warnings": warnings}
    labels, guessed = task.labels[split.test], guess(task.labels[split.train], task.num_classes)
    verdict = judge(metric, scores, labels, guessed, threshold)
    about |= {"test": verdict.score, **verdict.to_json()}
    if task.is_regression and verdict.scores["r2"] is not None:
        about["squared_error"] = squared_error(verdict.scores["r2"], labels)
    return about | {"warnings": verdict.warnings(_guessed_answer(metric, guessed, names)) + warnings}


def _guessed_answer(metric: str, guessed: np.ndarray, names: Sequence[str]) -> str:
    """What guessing is, in words."""
    if not names:
        return f"always answering the mean of the training values, {guessed[0]:.4g},"
    if METRICS[metric].counts is None:
        return "giving every node the shares of the classes in training"
    return f"always answering '{names[int(guessed.argmax())]}', the most common class in training,"
