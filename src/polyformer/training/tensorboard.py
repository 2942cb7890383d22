from __future__ import annotations

from pathlib import Path
from typing import Any

from polyformer.errors import MissingDependency
from polyformer.reporter import EpochRecord, Reporter

__all__ = ["TensorBoard"]


class TensorBoard(Reporter):
    """A reporter that writes loss and validation score of every epoch as TensorBoard events into a directory."""

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingDependency(
                "TensorBoard is not installed. Install it with: pip install 'polyformer[tensorboard]'"
            ) from None
        self._open: Any = lambda: SummaryWriter(str(directory))
        self._writer: Any = None

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        if self._writer is None:  # not before the run directory exists
            self._writer = self._open()
        self._writer.add_scalar("loss", record.loss, record.epoch)
        self._writer.add_scalar("val", record.val, record.epoch)
        self._writer.flush()
