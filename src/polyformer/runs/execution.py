"""A run is carried out: data and settings in, a run directory out, for a new run and for one that goes on."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from polyformer.devices import choose_device
from polyformer.errors import TrainingDiverged, TrainingInterrupted
from polyformer.files.run_names import CONFIG
from polyformer.reporter import SILENT, Reporter, Tee
from polyformer.runs.directory import read_checkpoint, removing_failed_start, replace_checkpoint, write_result
from polyformer.runs.metrics_file import drop_metrics_after, metrics_writer, removed_run
from polyformer.runs.preparation import Material, check_divisible, prepare_run
from polyformer.runs.request import RunRequest
from polyformer.runs.result import judgement, result_of
from polyformer.runs.run import Run
from polyformer.runs.saved_model import save_weights
from polyformer.training.distributed import ALONE, Workers
from polyformer.training.loop import CheckpointRegistry, Trainer
from polyformer.training.workload import label_masks_of, workload_of

__all__ = ["execute_run", "finished_result"]

LOST_SECONDS = 10.0
"""How long a worker that was started again waits for the one it replaces to be gone."""


def finished_result(out: Path) -> dict[str, Any] | None:
    """The result of the run that is to go on, if it has one already."""
    return Run.open(out).result


def execute_run(
    request: RunRequest,
    out: Path,
    *,
    resume: bool = False,
    reporter: Reporter = SILENT,
    workers: Workers = ALONE,
    registry: CheckpointRegistry | None = None,
    keep_freed_memory: bool = False,
) -> dict[str, Any]:
    """Train and write the run directory ``out``; returns what is in its ``result.json``.

    Args:
        resume: ``out`` exists; go on from its checkpoint. A finished run gives its result at once.
        reporter: hears of the data, the preparation and every epoch; where it wants to stop after an epoch, the state
            is saved and :class:`TrainingInterrupted` raised.
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
        run, material = prepare_run(
            request,
            out,
            resume=resume,
            reporter=reporter,
            workers=workers,
            num_workers=workers.count,
            tries=workers.count == 1,
        )
        patience = 0.0 if registry is None else LOST_SECONDS
        workers.first(lambda: stack.enter_context(run.locked(patience)))
        execution = _Execution(run, material, request, reporter, workers)
        preparation = execution.bind()
        trainer = execution.train(registry, keep_freed_memory)
        return execution.finish(trainer, preparation)


class _Execution:
    """One process's part in a run whose directory is there."""

    def __init__(self, run: Run, material: Material, request: RunRequest, reporter: Reporter, workers: Workers) -> None:
        self.run, self.material, self.reporter, self.workers = run, material, reporter, workers
        self.request = replace(request, memory=workers.first(lambda: Run(run.path).config["memory"]))

    def bind(self) -> dict[str, float]:
        """Prepare the model for its data; what is kept on disk is computed once. Returns the seconds that it took."""
        started, began = time.monotonic(), time.process_time()
        request, material = self.request, self.material
        material.model.to(self.workers.each(lambda: choose_device(request.device)))
        tokens = None if request.tokens is None else Path(request.tokens)
        workload = workload_of(
            material.split,
            material.training,
            request.memory,
            tokens,
            self.run.tokens,
            self.workers,
            None if material.labels is None else material.labels.known,
            label_masks_of(material.model, material.training, len(material.split.train), request.seed),
        )

        def bind() -> None:
            material.model.bind(material.task.graph, workload, self.reporter)
            check_divisible(material.model, request.model, self.workers.count)

        self.workers.in_turn(bind)
        return {
            "preparation_seconds": round(time.monotonic() - started, 3),
            "preparation_cpu_seconds": round(time.process_time() - began, 3),
        }

    def train(self, registry: CheckpointRegistry | None, keep_freed_memory: bool) -> Trainer:
        """Train to the end, from the checkpoint if there is one; the model keeps the parameters of the best epoch."""
        self.workers.first(lambda: self._go_on(registry))
        writing = metrics_writer(self.run.path) if self.workers.rank == 0 else contextlib.nullcontext(SILENT)
        with writing as metrics:
            trainer = self._trainer(Tee(metrics, self.reporter), registry, keep_freed_memory)
            if self.material.heard:
                trainer.resumed_after.clear()  # the trial was this very training
                for epoch in self.material.heard:
                    self.reporter.epoch(*epoch)
            try:
                trainer.run()
            except TrainingInterrupted as error:
                self._save_best(trainer)
                raise TrainingInterrupted(
                    f"{error} Nothing is lost: continue with polyformer train --resume --out {self.run.path}"
                ) from None
            except TrainingDiverged as error:
                if trainer.stopping.best_epoch == 0:
                    raise
                self._save_best(trainer)
                raise TrainingDiverged(f"{error} The model of epoch {trainer.stopping.best_epoch} is kept.") from None
        return trainer

    def _go_on(self, registry: CheckpointRegistry | None) -> None:
        """Let checkpoint and metrics end at the same epoch."""
        if registry is not None and registry.latest is not None:
            replace_checkpoint(self.run.path, registry.latest)
        checkpoint = self.run.checkpoint
        drop_metrics_after(self.run.path, read_checkpoint(self.run.path).epoch if checkpoint.exists() else 0)

    def _trainer(self, reporter: Reporter, registry: CheckpointRegistry | None, keep_freed_memory: bool) -> Trainer:
        material = self.material
        return Trainer(
            material.model,
            material.card.reader,
            material.card.metric,
            material.task.labels,
            material.split,
            material.training,
            seed=self.request.seed,
            checkpoint=self.run.checkpoint,
            reporter=reporter,
            workers=self.workers,
            registry=registry,
            keep_freed_memory=keep_freed_memory,
        )

    def _save_best(self, trainer: Trainer) -> None:
        self.workers.first(lambda: save_weights(self.run.path, trainer.best_parameters))

    def finish(self, trainer: Trainer, preparation: dict[str, float]) -> dict[str, Any]:
        """Judge the model by the test nodes, once, and write it and the result."""
        test = self.material.split.test
        calibration = trainer.calibrate()
        scores = trainer.scores(torch.from_numpy(test)) if len(test) else None

        def write() -> dict[str, Any]:
            if not (self.run.path / CONFIG).exists():
                raise removed_run(self.run.path)
            save_weights(self.run.path, trainer.best_parameters, calibration)
            judged = judgement(self.material, scores, calibration)
            result = result_of(self.request, self.material, trainer, judged, preparation, self.run.trials)
            write_result(self.run.path, result)
            return result

        return self.workers.first(write)
