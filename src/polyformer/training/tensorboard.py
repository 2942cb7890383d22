from __future__ import annotations

from pathlib import Path

from polyformer.errors import MissingDependency
from polyformer.training.loop import EpochRecord, Observer

__all__ = ["tensorboard_observer"]


def tensorboard_observer(directory: Path) -> Observer:
    """An observer that writes loss and validation score as TensorBoard events."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingDependency(
            "TensorBoard is not installed. Install it with: pip install 'polyformer[tensorboard]'"
        ) from None
    writer: SummaryWriter | None = None

    def observe(record: EpochRecord, best_epoch: int, best_score: float) -> None:
        nonlocal writer
        if writer is None:  # not before the run directory exists
            writer = SummaryWriter(str(directory))
        writer.add_scalar("loss", record.loss, record.epoch)
        writer.add_scalar("val", record.val, record.epoch)
        writer.flush()

    return observe
