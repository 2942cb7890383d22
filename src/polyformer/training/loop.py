"""The training loop: epochs of optimiser steps, validation, early stopping, checkpoints."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from polyformer.calibration import Calibration, calibrate
from polyformer.errors import FileCorrupt, TrainingInterrupted
from polyformer.evaluation import Judge
from polyformer.machine import keeping_freed_memory
from polyformer.models.contract import NodeModel
from polyformer.objectives import Objective
from polyformer.reporter import SILENT, EpochRecord, Reporter
from polyformer.splits import Split
from polyformer.training.checkpoint import Checkpoint
from polyformer.training.distributed import ALONE, Workers
from polyformer.training.early_stopping import EarlyStopping
from polyformer.training.settings import TrainingSettings
from polyformer.training.steps import Steps

__all__ = [
    "CheckpointRegistry",
    "Trainer",
    "derive_seed",
]

CHECKPOINT_SECONDS = 10.0

Value = TypeVar("Value")


class CheckpointRegistry(Protocol):
    """A program that starts lost workers again keeps checkpoints of its own.

    Attributes:
        seconds: how often it wants one.
        latest: the file of the last it has, from which training is to go on; None if it has none yet.
    """

    seconds: float
    latest: Path | None

    def register(self, epoch: int) -> None:
        """Called by all workers when the first has written one."""


def derive_seed(*parts: int) -> int:
    """One seed from several numbers, e.g. a run's seed and an epoch."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


class Trainer(Steps):
    """Trains a bound model on one split.

    Only training nodes enter the training pass and only validation nodes the evaluation; the test nodes are never
    touched here. The run is a function of its settings and seed: each epoch seeds its own generators.

    Args:
        model: already bound to the graph and on its device.
        settings: resolved, with a number for the batch size.
        labels: (N,) labels of the whole graph; only those of the split are read.
        checkpoint: where to keep the state; None keeps none. If the file exists, training goes on from it.
        reporter: hears of every epoch, on the first worker; where one worker's reporter then wants to stop, training
            ends with :class:`TrainingInterrupted`.
        workers: the processes that train together; each is given the same arguments, and only the first writes.
        registry: is told of every checkpoint.
        keep_freed_memory: train inside :func:`~polyformer.machine.keeping_freed_memory`, which changes the allocator of
            the whole process: for a process that does nothing else.
    """

    def __init__(
        self,
        model: NodeModel,
        objective: Objective,
        metric: str,
        labels: np.ndarray,
        split: Split,
        settings: TrainingSettings,
        seed: int = 0,
        checkpoint: Path | None = None,
        reporter: Reporter = SILENT,
        workers: Workers = ALONE,
        registry: CheckpointRegistry | None = None,
        keep_freed_memory: bool = False,
    ) -> None:
        super().__init__(model, objective, labels, split, settings, workers, seed)
        self.judge = Judge.of(metric, labels, split, two_classes=objective.name == "binary")
        self.seed, self.fits = seed, split.fit
        self.val_nodes, self.val_labels = torch.from_numpy(split.val), labels[split.val]
        self.checkpoint, self.reporter, self.registry = checkpoint, reporter, registry
        self.stopping = EarlyStopping(settings.patience, self.judge.metric.larger_is_better)
        self.epoch, self.seconds, self.cpu_seconds = 0, 0.0, 0.0
        self.resumed_after: list[int] = []
        self.best_parameters = self._copy_parameters()
        if checkpoint is not None:
            self._restore(workers.first(lambda: Checkpoint.load(checkpoint) if checkpoint.exists() else None))
        self._accumulate = workers.accumulator(model)
        self._keep_freed_memory = keep_freed_memory

    def run(self) -> None:
        """Train to the end and leave the model with the parameters of the best epoch."""
        try:
            with (
                keeping_freed_memory() if self._keep_freed_memory else contextlib.nullcontext(self._trim) as self._trim
            ):
                self._run_epochs()
        except TrainingInterrupted:
            self.save()
            raise
        self.save()
        # Sent from the CPU: the number of a device means another one to another worker, or none.
        self.best_parameters = self.workers.first(
            lambda: {name: tensor.cpu() for name, tensor in self.best_parameters.items()}
        )
        self.model.load_state_dict(self.best_parameters)

    def _run_epochs(self) -> None:
        saved = time.monotonic()
        interval = CHECKPOINT_SECONDS if self.registry is None else self.registry.seconds
        while self.epoch < self.settings.epochs and not self.stopping.should_stop(self.epoch):
            self._run_epoch()
            if self.workers.any(self.reporter.should_stop()):
                raise TrainingInterrupted(f"Training was stopped after epoch {self.epoch}.")
            if self.workers.any(self.workers.rank == 0 and time.monotonic() - saved > interval):
                self.save()
                saved = time.monotonic()

    def save(self) -> None:
        """Write the checkpoint, if one is kept."""
        if self.checkpoint is not None and self.workers.rank == 0:
            self._write(self.checkpoint)
        if self.registry is not None:
            self.registry.register(self.epoch)

    def _write(self, path: Path) -> None:
        state = self.optimizer.state_dict()["state"]
        Checkpoint(
            self.epoch,
            self.seconds,
            self.stopping.best_epoch,
            self.stopping.best_score,
            dict(self.model.state_dict()),
            self.best_parameters,
            {
                i: {key: value for key, value in entry.items() if isinstance(value, Tensor)}
                for i, entry in state.items()
            },
            self.resumed_after,
            self.cpu_seconds,
        ).save(path)

    @torch.no_grad()
    def scores(self, nodes: Tensor) -> np.ndarray | None:
        """Probabilities (n, C) or values (n, 1) of some nodes, in evaluation mode, on the first; None on others."""
        self.model.eval()
        outputs = self.workers.outputs(self.model, nodes.to(self.device))
        return None if outputs is None else self.objective.scores(outputs)

    def calibrate(self) -> Calibration:
        """Temperature, threshold and what is held out for coverage, by the validation nodes."""

        def by_validation(scores: np.ndarray, labels: np.ndarray) -> Calibration:
            return calibrate(scores, labels, self.judge, self.seed, seen=self.fits)

        return self._on_validation(by_validation)

    def _on_validation(self, judge: Callable[[np.ndarray, np.ndarray], Value]) -> Value:
        scores = self.scores(self.val_nodes)

        def of_all() -> Value:
            assert scores is not None, "the first has them"
            return judge(scores, self.val_labels)

        return self.workers.first(of_all)

    def _run_epoch(self) -> None:
        start, began = time.monotonic(), time.process_time()
        epoch = self.epoch + 1
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.settings.rate_factor(epoch)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            rank = (self.workers.rank,) if self.workers.rank else ()  # the first draws as one that is alone
            torch.manual_seed(derive_seed(self.seed, 1, epoch, *rank))
            loss = self._train_pass(np.random.default_rng(derive_seed(self.seed, 2, epoch)))
        val = self._on_validation(self.judge.score)
        self.epoch = epoch
        if self.stopping.update(epoch, val):
            self.best_parameters = self._copy_parameters()
        seconds = time.monotonic() - start
        self.seconds += seconds
        self.cpu_seconds += time.process_time() - began
        if self.workers.rank == 0:
            record = EpochRecord(epoch, loss, val, seconds)
            self.reporter.epoch(record, self.stopping.best_epoch, self.stopping.best_score)

    def _copy_parameters(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            return
        try:
            self.model.load_state_dict(checkpoint.parameters)
        except RuntimeError:
            raise FileCorrupt(
                f"The checkpoint '{self.checkpoint}' belongs to another model. Start a new run."
            ) from None
        self.best_parameters = {name: tensor.to(self.device) for name, tensor in checkpoint.best_parameters.items()}
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": checkpoint.optimizer})
        self.stopping.best_epoch, self.stopping.best_score = checkpoint.best_epoch, checkpoint.best_score
        self.epoch, self.seconds, self.cpu_seconds = checkpoint.epoch, checkpoint.seconds, checkpoint.cpu_seconds
        self.resumed_after = [*checkpoint.resumed_after, checkpoint.epoch]
