"""What training asks of a model, which training nodes a worker owns, and which labels the steps hide."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from polyformer.errors import InvalidParameter
from polyformer.label_input import KnownLabels, LabelMasks
from polyformer.models.contract import NodeModel, Workload
from polyformer.splits import Split
from polyformer.training.distributed import ALONE, Workers
from polyformer.training.settings import TrainingSettings

__all__ = ["check_label_input", "label_masks_of", "owned_nodes", "workload_of"]


def check_label_input(model: NodeModel, name: str, split: Split) -> None:
    """Refuse known labels as input where they tell a model nothing, or would tell it the answer."""
    if model.label_channels == 0:
        return
    refusal = model.label_refusal(name)
    if refusal is not None:
        raise InvalidParameter(refusal)
    if split.fit:
        raise InvalidParameter(
            "'label_input' must be 0 where a signal is fitted: the model is judged by the labels that it would be "
            "shown. Leave label_input out."
        )
    if len(split.train) < 2:
        raise InvalidParameter(
            f"'label_input' needs 2 training nodes or more, one to hide and one to show. Got {len(split.train)}."
        )


def label_masks_of(model: NodeModel, settings: TrainingSettings, num_train: int, seed: int) -> LabelMasks | None:
    """The masks by which training hides labels; None for a model without label columns."""
    if model.label_channels == 0:
        return None
    count = settings.label_masks if model.stores_label_tokens else 0
    return LabelMasks(settings.label_input, num_train, seed, count)


def workload_of(
    split: Split,
    settings: TrainingSettings,
    memory: int | None = None,
    tokens: Path | None = None,
    scratch: Path | None = None,
    workers: Workers = ALONE,
    labels: KnownLabels | None = None,
    masks: LabelMasks | None = None,
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
    drawn = () if masks is None else masks.drawn
    sizes = rows, steps + 1, settings.epochs
    return Workload(nodes, *sizes, memory, tokens, scratch, share=share, labels=labels, label_masks=drawn)


def owned_nodes(train: np.ndarray, settings: TrainingSettings, workers: Workers) -> np.ndarray:
    """(n,) whether this worker takes each training node, whatever batch it is in.

    Where nodes are shuffled, those of one worker are best neighbours on disk; batches that stay together are shared.
    """
    assert isinstance(settings.batch_size, int), "resolve the settings first"
    return workers.owner(train, settings.batch_size, by_node=settings.shuffle == "nodes") == workers.rank
