"""The training loop: epochs of optimiser steps, validation, early stopping, checkpoints."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from polyformer.errors import FileCorrupt, InvalidParameter, TrainingDiverged, TrainingInterrupted
from polyformer.evaluation import Judge
from polyformer.machine import keeping_freed_memory
from polyformer.models.contract import NodeModel, Workload
from polyformer.splits import Split
from polyformer.tasks import Objective
from polyformer.training.checkpoint import Checkpoint
from polyformer.training.distributed import ALONE, Workers
from polyformer.training.early_stopping import EarlyStopping
from polyformer.training.settings import TrainingSettings

__all__ = [
    "CheckpointRegistry",
    "EpochRecord",
    "Observer",
    "Trainer",
    "check_optimizer",
    "class_weights",
    "derive_seed",
    "workload_of",
]

CHECKPOINT_SECONDS = 10.0

_LBFGS_ITERATIONS, _LBFGS_HISTORY = 100, 50

Value = TypeVar("Value")


@dataclass(frozen=True)
class EpochRecord:
    """One line of ``metrics.jsonl``; ``seconds`` is the time of this epoch."""

    epoch: int
    loss: float
    val: float
    seconds: float


class Observer(Protocol):
    """Is told after every epoch."""

    def __call__(self, record: EpochRecord, best_epoch: int, best_score: float) -> None: ...


class CheckpointRegistry(Protocol):
    """Whoever starts lost workers again keeps checkpoints of its own.

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


def workload_of(
    split: Split,
    settings: TrainingSettings,
    memory: int | None = None,
    tokens: Path | None = None,
    scratch: Path | None = None,
    report: Callable[[str], None] | None = None,
    workers: Workers = ALONE,
) -> Workload:
    """What training on this split will ask of the model, and what it may use: see :class:`Workload`."""
    assert isinstance(settings.batch_size, int), "resolve the settings first"
    steps = -(-len(split.train) // settings.batch_size)
    # Part by part, so that where rows lie on disk each part is read in one piece.
    parts = (split.train,) if split.fit else (split.train, split.val, split.test)
    nodes = np.concatenate([np.sort(part) for part in parts])
    rows = len(split.train) + len(split.val)
    share: np.ndarray | None = None
    if workers.count > 1:
        parts = (split.train[_owned(split.train, settings, workers)],)
        parts += tuple(part[workers.owner(part) == workers.rank] for part in (split.val, split.test))
        share = np.unique(np.concatenate(parts))
    return Workload(nodes, rows, steps + 1, settings.epochs, memory, tokens, scratch, report, share)


def _owned(train: np.ndarray, settings: TrainingSettings, workers: Workers) -> np.ndarray:
    """(n,) whether this worker takes each training node, whatever batch it is in.

    Where nodes are shuffled, those of one worker are best neighbours on disk; batches that stay together are shared.
    """
    assert isinstance(settings.batch_size, int), "resolve the settings first"
    return workers.owner(train, settings.batch_size, by_node=settings.shuffle == "nodes") == workers.rank


def check_optimizer(model: NodeModel, settings: TrainingSettings) -> None:
    """L-BFGS knows no weight decay, neither of the whole model nor of parts of it."""
    decay = max(group.get("weight_decay", settings.weight_decay) for group in model.parameter_groups())
    if settings.optimizer == "lbfgs" and decay > 0:
        raise InvalidParameter(
            f"'weight_decay' must be 0 with optimizer=lbfgs, as must that of its parts. Got {decay}."
        )


def class_weights(labels: np.ndarray, num_classes: int) -> Tensor:
    """Weights inverse to the classes' frequency, 1 on average over the nodes."""
    counts = np.bincount(labels, minlength=num_classes)
    weights = np.divide(len(labels), num_classes * counts, out=np.zeros(num_classes), where=counts > 0)
    return torch.from_numpy(weights.astype(np.float32))


def _cut(pieces: Iterable[Tensor], size: int) -> Iterator[Tensor]:
    """The concatenated pieces in batches of ``size``, the last of what is left."""
    left = torch.empty(0, dtype=torch.long)
    for piece in pieces:
        left = torch.cat([left, piece])
        if len(left) < size:
            continue
        whole = len(left) - len(left) % size
        yield from left[:whole].split(size)
        left = left[whole:]
    if len(left):
        yield left


class Trainer:
    """Trains a bound model on one split.

    Only training nodes enter the training pass and only validation nodes the evaluation; the test nodes are never
    touched here. The run is a function of its settings and seed: each epoch seeds its own generators.

    Args:
        model: already bound to the graph and on its device.
        settings: resolved, with a number for the batch size.
        labels: (N,) labels of the whole graph; only those of the split are read.
        checkpoint: where to keep the state; None keeps none. If the file exists, training goes on from it.
        should_stop: asked after every epoch; True ends training with :class:`TrainingInterrupted`.
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
        observer: Observer | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        workers: Workers = ALONE,
        registry: CheckpointRegistry | None = None,
        keep_freed_memory: bool = False,
    ) -> None:
        self.model, self.objective = model, objective
        self.judge = Judge.of(metric, labels, split, two_classes=objective.name == "binary")
        self.settings, self.seed, self.workers = settings, seed, workers
        self.device = next(model.parameters()).device
        self.train_nodes, self.val_nodes = torch.from_numpy(split.train), torch.from_numpy(split.val)
        dtype = torch.float64 if labels.dtype.kind == "f" else torch.long  # as read: a large mean leaves no digits else
        self.train_labels = torch.from_numpy(labels[split.train]).to(self.device, dtype)
        self.val_labels = labels[split.val]
        self.owned = None if workers.count == 1 else torch.from_numpy(_owned(split.train, settings, workers))
        self.weights: Tensor | None = None
        if settings.class_weights == "balanced" and labels.dtype.kind != "f":
            count = max(2, model.out_channels)  # one output tells two classes apart
            self.weights = class_weights(labels[split.train], count).to(self.device)
        check_optimizer(model, settings)
        self.optimizer = torch.optim.Adam(
            model.parameter_groups(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True
        )
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.checkpoint, self.observer, self.should_stop, self.registry = checkpoint, observer, should_stop, registry
        self.stopping = EarlyStopping(settings.patience, self.judge.metric.larger_is_better)
        self.epoch, self.seconds, self.cpu_seconds = 0, 0.0, 0.0
        self.resumed_after: list[int] = []
        self.best_parameters = self._copy_parameters()
        if checkpoint is not None:
            self._restore(workers.first(lambda: Checkpoint.load(checkpoint) if checkpoint.exists() else None))
        self._accumulate = workers.accumulator(model)
        self._keep_freed_memory = keep_freed_memory
        self._trim: Callable[[], None] = lambda: None

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
        self.best_parameters = self.workers.first(lambda: self.best_parameters)
        self.model.load_state_dict(self.best_parameters)

    def _run_epochs(self) -> None:
        saved = time.monotonic()
        interval = CHECKPOINT_SECONDS if self.registry is None else self.registry.seconds
        while self.epoch < self.settings.epochs and not self.stopping.should_stop(self.epoch):
            self._run_epoch()
            if self.workers.any(self.should_stop()):
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

    def threshold(self) -> float | None:
        """From which probability on the second of two unequal classes is predicted, by the validation nodes."""
        if not self.judge.adjusts:
            return None
        return self._on_validation(self.judge.threshold)

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
        if self.observer is not None:
            self.observer(EpochRecord(epoch, loss, val, seconds), self.stopping.best_epoch, self.stopping.best_score)

    def _train_pass(self, random: np.random.Generator) -> float:
        self.model.train()
        total = 0.0
        whole: deque[Tensor] = deque()

        def parts() -> Iterator[Tensor]:
            for rows in self._batches(random):
                whole.append(rows)
                yield self._part(rows)

        with contextlib.closing(self.model.ahead(self.train_nodes, parts())) as announced:
            for _ in announced:
                rows = whole.popleft()
                total += self._step(rows) * len(rows)
        loss_of_epoch = self.workers.total(total) / len(self.train_nodes)
        if not np.isfinite(loss_of_epoch):
            raise TrainingDiverged(
                f"The loss became {loss_of_epoch} in epoch {self.epoch + 1}. "
                f"Lower lr={self.settings.lr} or scale the features."
            )
        return loss_of_epoch

    def _step(self, rows: Tensor) -> float:
        """Learn from the training nodes at these positions; returns this worker's part of the loss there was before."""
        if self.settings.optimizer == "lbfgs":
            return self._search(rows)
        loss = self._differentiate(rows)
        self.optimizer.step()
        return loss

    def _search(self, rows: Tensor) -> float:
        """Iterations of L-BFGS, which begin without memory of earlier ones: there is no state to keep.

        All of them see the same dropout, so that they descend on one function.
        """
        seed, losses = torch.initial_seed(), []
        search = torch.optim.LBFGS(
            self.model.parameters(),
            max_iter=_LBFGS_ITERATIONS,
            max_eval=2 * _LBFGS_ITERATIONS,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            history_size=_LBFGS_HISTORY,
            line_search_fn="strong_wolfe",
        )

        def loss() -> float:
            torch.manual_seed(seed)
            losses.append(self._differentiate(rows))
            return self.workers.total(losses[-1])

        search.step(loss)
        return losses[0]

    def _differentiate(self, rows: Tensor) -> float:
        """Leave the gradient of the loss on these positions in the parameters; returns this worker's part of the loss.

        Each worker divides by the normaliser of the whole batch, so that losses and gradients add up over all.
        """
        self.optimizer.zero_grad(set_to_none=True)
        scale = self.objective.normaliser(self.train_labels[rows.to(self.device)], self.weights)
        rows = self._part(rows)
        labels = self.train_labels[rows.to(self.device)]

        def loss(outputs: Tensor, part: slice) -> Tensor:
            return self.objective.loss(outputs, labels[part], self.weights) / scale

        value = self._accumulate(self.train_nodes[rows].to(self.device), loss)
        self._trim()
        return value

    def _part(self, rows: Tensor) -> Tensor:
        """What this worker takes of a batch of positions."""
        return rows if self.owned is None else rows[self.owned[rows]]

    def _batches(self, random: np.random.Generator) -> Iterator[Tensor]:
        """Positions among the training nodes, a batch at a time."""
        count = len(self.train_nodes)
        size = self.settings.batch_size
        assert isinstance(size, int), "resolve the settings first"
        if size >= count:
            yield torch.arange(count)
        elif self.settings.shuffle == "nodes":
            yield from _cut(self.model.shuffle(self.train_nodes, random), size)
        else:
            fixed = torch.arange(count).split(size)
            yield from (fixed[i] for i in random.permutation(len(fixed)))

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
