"""The optimiser steps of an epoch: batches of training nodes, their loss and its gradient."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from polyformer.errors import InvalidParameter, TrainingDiverged
from polyformer.label_input import LabelMask
from polyformer.models.contract import NodeModel
from polyformer.objectives import Objective
from polyformer.splits import Split
from polyformer.training.distributed import Workers
from polyformer.training.settings import TrainingSettings
from polyformer.training.workload import label_masks_of, owned_nodes

__all__ = ["Steps", "check_optimizer", "class_weights", "cut_batches"]

_LBFGS_ITERATIONS, _LBFGS_HISTORY = 100, 50


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


def cut_batches(pieces: Iterable[Tensor], size: int) -> Iterator[Tensor]:
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


class Steps:
    """What a trainer does in an epoch: it learns from every training node once, batch by batch.

    Where known labels are input, it learns from those nodes of a batch whose labels the step hides.

    Args:
        model: already bound to the graph and on its device.
        settings: resolved, with a number for the batch size.
        labels: (N,) labels of the whole graph; only those of the training nodes are read.
        workers: the processes that share each batch.
        seed: decides which labels the steps of a model with label columns hide.
    """

    epoch = 0
    """Epochs that have ended."""

    def __init__(
        self,
        model: NodeModel,
        objective: Objective,
        labels: np.ndarray,
        split: Split,
        settings: TrainingSettings,
        workers: Workers,
        seed: int = 0,
    ) -> None:
        self.masks = label_masks_of(model, settings, len(split.train), seed)
        self.model, self.objective, self.settings, self.workers = model, objective, settings, workers
        self.device = next(model.parameters()).device
        self.train_nodes = torch.from_numpy(split.train)
        # Values stay as read, in float64 on the CPU: a large mean leaves no digits else, and not all devices have it.
        place, dtype = ("cpu", torch.float64) if labels.dtype.kind == "f" else (self.device, torch.long)
        self.train_labels = torch.from_numpy(labels[split.train]).to(place, dtype)
        self.owned = None if workers.count == 1 else torch.from_numpy(owned_nodes(split.train, settings, workers))
        self.weights: Tensor | None = None
        if settings.class_weights == "balanced" and labels.dtype.kind != "f":
            count = max(2, model.out_channels)  # one output tells two classes apart
            self.weights = class_weights(labels[split.train], count).to(self.device)
        check_optimizer(model, settings)
        self.optimizer = torch.optim.Adam(
            model.parameter_groups(), lr=settings.lr, weight_decay=settings.weight_decay, fused=True
        )
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self._accumulate: Callable[[Tensor, Callable[[Tensor, slice], Tensor]], float] = model.accumulate
        self._trim: Callable[[], None] = lambda: None

    def _train_pass(self, random: np.random.Generator) -> float:
        self.model.train()
        total, learned = 0.0, 0
        whole: deque[tuple[Tensor, LabelMask | None]] = deque()

        def parts() -> Iterator[Tensor]:
            for step, batch in enumerate(self._batches(random)):
                rows, mask = self._hide(batch, step)
                if len(rows):
                    whole.append((rows, mask))
                    yield self._part(rows)

        with contextlib.closing(self.model.ahead(self.train_nodes, parts())) as announced:
            for _ in announced:
                rows, mask = whole.popleft()
                with self.model.hiding(mask):
                    total += self._step(rows) * len(rows)
                learned += len(rows)
        loss_of_epoch = self.workers.total(total) / max(1, learned)
        if not np.isfinite(loss_of_epoch):
            raise TrainingDiverged(
                f"The loss became {loss_of_epoch} in epoch {self.epoch + 1}. "
                f"Lower lr={self.settings.lr} or scale the features."
            )
        return loss_of_epoch

    def _hide(self, rows: Tensor, step: int) -> tuple[Tensor, LabelMask | None]:
        """The positions of a batch that a step learns from, and what it hides.

        With labels as input these are the nodes whose own labels are hidden: from a label that is shown, a model would
        learn to copy it.
        """
        if self.masks is None:
            return rows, None
        mask = self.masks.of_step(self.epoch + 1, step)
        return rows[torch.from_numpy(mask.hidden)[rows]], mask

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
        scale = self.objective.normaliser(self.train_labels[rows.to(self.train_labels.device)], self.weights)
        rows = self._part(rows)
        labels = self.train_labels[rows.to(self.train_labels.device)]

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
            yield from cut_batches(self.model.shuffle(self.train_nodes, random), size)
        else:
            fixed = torch.arange(count).split(size)
            yield from (fixed[i] for i in random.permutation(len(fixed)))
