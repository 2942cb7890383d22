"""What training asks of a model, and which training nodes a worker owns."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyformer.models.contract import Workload
from polyformer.splits import Split
from polyformer.training.distributed import ALONE, Workers
from polyformer.training.settings import TrainingSettings

__all__ = ["owned_nodes", "workload_of"]


def workload_of(
    split: Split,
    settings: TrainingSettings,
    memory: int | None = None,
    tokens: Path | None = None,
    scratch: Path | None = None,
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
        parts = (split.train[owned_nodes(split.train, settings, workers)],)
        parts += tuple(part[workers.owner(part) == workers.rank] for part in (split.val, split.test))
        share = np.unique(np.concatenate(parts))
    return Workload(nodes, rows, steps + 1, settings.epochs, memory, tokens, scratch, share=share)


def owned_nodes(train: np.ndarray, settings: TrainingSettings, workers: Workers) -> np.ndarray:
    """(n,) whether this worker takes each training node, whatever batch it is in.

    Where nodes are shuffled, those of one worker are best neighbours on disk; batches that stay together are shared.
    """
    assert isinstance(settings.batch_size, int), "resolve the settings first"
    return workers.owner(train, settings.batch_size, by_node=settings.shuffle == "nodes") == workers.rank
