"""Several processes that train one model: what each takes of a batch, and what they tell each other.

Every process computes the same global order of the training nodes and takes from each batch the nodes that it owns, so
that the batches, and by the sum of all gradients the steps, are those of one process. Ownership does not change, so a
process reads the tokens of its own nodes and no others.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from polyformer.errors import PolyformerError, WorkerLost
from polyformer.models.contract import NodeModel

__all__ = ["ALONE", "PATIENCE", "ProcessGroup", "Workers", "owners"]

PATIENCE = timedelta(days=1)
"""How long a process waits for another: the first may compute tokens for hours. One that ends is noticed at once."""

_LAST_WORDS = "polyformer/error"
_LAST_WORDS_SECONDS = 3.0

Value = TypeVar("Value")
Loss = Callable[[Tensor, slice], Tensor]


def owners(count: int, batch_size: int, workers: int) -> np.ndarray:
    """(count,) the worker of each position: a batch of consecutive positions is cut into equal consecutive parts.

    So batches that stay together are shared equally, shuffled ones nearly so, and each worker's part of what lies in
    order on a disk comes in long pieces.

    >>> owners(7, 4, 2).tolist()
    [0, 0, 1, 1, 0, 0, 1]
    """
    position = np.arange(count)
    start = position - position % batch_size
    return (position - start) * workers // np.minimum(batch_size, count - start)


class Workers:
    """The processes of one training run, of which this is number ``rank`` of ``count``; here it is alone."""

    rank, count = 0, 1

    def total(self, value: float) -> float:
        """The sum over all."""
        return value

    def any(self, flag: bool) -> bool:
        """Whether it holds for one of them."""
        return flag

    def first(self, work: Callable[[], Value]) -> Value:
        """The result of ``work``, which only the first process calls; if it fails there, all processes fail."""
        return work()

    def each(self, work: Callable[[], Value]) -> Value:
        """What this one gets from ``work``, which all call, and which calls none of these; if one fails, all do."""
        return work()

    def in_turn(self, work: Callable[[], Value]) -> Value:
        """As :meth:`each`, but the other processes begin when the first has ended, so that they find its files on
        disk."""
        return work()

    def outputs(self, model: NodeModel, nodes: Tensor) -> Tensor | None:
        """The model's outputs, (B,) -> (B, out), on the first process; None on the others. Each process computes a part
        of them."""
        return model(nodes)

    def accumulator(self, model: NodeModel) -> Callable[[Tensor, Loss], float]:
        """What :meth:`NodeModel.accumulate` is for this process's part of a batch; gradients add up over all."""
        return model.accumulate

    def owner(self, nodes: np.ndarray, batch_size: int | None = None, by_node: bool = True) -> np.ndarray:
        """(n,) the rank of the process that computes each of the nodes.

        Args:
            batch_size: see :func:`owners`; all are one batch by default.
            by_node: the order that is cut into batches is that of the ids, else the one in which they are given.
        """
        owner = owners(len(nodes), batch_size or max(1, len(nodes)), self.count)
        if by_node:
            owner[np.argsort(nodes, kind="stable")] = owner.copy()
        return owner


ALONE = Workers()


class ProcessGroup(Workers):
    """The processes of the default group of ``torch.distributed``: gloo between CPUs, nccl between GPUs.

    Args:
        store: a store of ``torch.distributed``, in which a failing process leaves its error for the first; None for no
            store.
    """

    def __init__(self, store: Any = None) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self._store = store

    def total(self, value: float) -> float:
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor)
        return float(tensor)

    def any(self, flag: bool) -> bool:
        return self.total(float(flag)) > 0

    def first(self, work: Callable[[], Value]) -> Value:
        answers: list[Any] = [_Answer.of(work) if self.rank == 0 else None]
        dist.broadcast_object_list(answers)
        outcome: _Answer[Value] = answers[0]
        return outcome.get()

    def each(self, work: Callable[[], Value]) -> Value:
        outcome = _Answer.of(work)
        errors: list[Any] = [None] * self.count
        dist.all_gather_object(errors, outcome.error)
        for error in (outcome.error, *errors):
            if error is not None:
                raise error
        return outcome.get()

    def in_turn(self, work: Callable[[], Value]) -> Value:
        kept: list[Value] = []
        self.first(lambda: kept.append(work()))
        return self.each(lambda: kept[0] if kept else work())

    def outputs(self, model: NodeModel, nodes: Tensor) -> Tensor | None:
        owner = torch.from_numpy(self.owner(nodes.cpu().numpy())).to(nodes.device)
        mine = nodes[owner == self.rank]
        rows = model(mine) if len(mine) else torch.empty(0, model.out_channels, device=nodes.device)
        sizes = torch.bincount(owner, minlength=self.count).tolist()
        padded = rows.new_zeros((max(sizes), rows.shape[1]))
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes] if self.rank == 0 else None
        dist.gather(padded, parts)
        if parts is None:
            return None
        outputs = padded.new_empty((len(nodes), padded.shape[1]))
        gathered = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
        outputs[torch.argsort(owner, stable=True)] = gathered
        return outputs

    def accumulator(self, model: NodeModel) -> Callable[[Tensor, Loss], float]:
        return _ParallelSteps(model, self.count).accumulate

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Let one sentence tell why all end: what fails elsewhere is raised by the first, whose word is printed."""
        try:
            yield
        except Exception as error:
            if _is_lost(error):
                raise WorkerLost(self._last_words() or _lost_sentence(error)) from error
            if self.rank and self._store is not None:
                self._store.set(_LAST_WORDS, f"Worker {self.rank} failed. {error}")
            raise

    def _last_words(self) -> str | None:
        if self._store is None or self.rank:
            return None
        try:
            self._store.wait([_LAST_WORDS], timedelta(seconds=_LAST_WORDS_SECONDS))
            return str(self._store.get(_LAST_WORDS).decode())
        except (dist.DistError, RuntimeError):  # it said nothing
            return None


class _PartialLoss(nn.Module):
    """The loss of some rows as a module, so that DistributedDataParallel sees all that its gradient flows through."""

    def __init__(self, model: NodeModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, nodes: Tensor, loss: Loss, rows: slice) -> Tensor:
        return loss(self.model(nodes), rows)


class _ParallelSteps:
    """Gradients by DistributedDataParallel: slices pile up on each process, and those of the last are exchanged.

    The loss is that of this process's part, normalised by the whole batch, so gradients are to be added; as
    DistributedDataParallel takes their mean, each is multiplied by the number of processes. One that owns nothing of a
    batch goes through the model with no rows, as all must take part in the exchange.
    """

    def __init__(self, model: NodeModel, count: int) -> None:
        self.model, self.count = model, count
        self.network = DistributedDataParallel(_PartialLoss(model))

    def accumulate(self, nodes: Tensor, loss: Loss) -> float:
        step, total = self.model.rows_per_step or max(1, len(nodes)), 0.0
        for start in range(0, max(1, len(nodes)), step):
            rows = slice(start, min(start + step, len(nodes)))
            with contextlib.nullcontext() if rows.stop == len(nodes) else self.network.no_sync():
                value = self.network(nodes[rows], loss, rows)
                (self.count * value).backward()
            total += float(value.detach())
        return total


@dataclass(frozen=True)
class _Answer(Generic[Value]):
    """What a call gave, or why it failed, in a form that can be sent."""

    value: Value | None = None
    error: Exception | None = None

    @classmethod
    def of(cls, work: Callable[[], Value]) -> _Answer[Value]:
        try:
            return cls(work())
        except Exception as error:
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # holds what cannot be sent
                return cls(error=RuntimeError(f"{type(error).__name__}: {error}"))
            return cls(error=error)

    def get(self) -> Value:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


def _is_lost(error: Exception) -> bool:
    """Whether it says that another process is gone: gloo's errors have no class of their own."""
    if not isinstance(error, RuntimeError) or isinstance(error, PolyformerError):
        return False
    return isinstance(error, dist.DistError) or any(word in str(error) for word in ("gloo", "Connection", "connection"))


def _lost_sentence(error: Exception) -> str:
    return f"Another worker of this run ended or cannot be reached ({str(error).splitlines()[0]})."
