from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["EarlyStopping"]


@dataclass
class EarlyStopping:
    """Remembers the best validation score; only a strictly greater one replaces it.

    Example:
        >>> stopping = EarlyStopping(patience=2)
        >>> [stopping.update(epoch, score) for epoch, score in enumerate([0.5, 0.7, 0.7, 0.6], start=1)]
        [True, True, False, False]
        >>> stopping.best_epoch, stopping.should_stop(4)
        (2, True)
    """

    patience: int
    best_epoch: int = 0
    best_score: float = -math.inf

    def update(self, epoch: int, score: float) -> bool:
        """Whether this epoch is the best so far. A score that is not a number never is, except at the very start."""
        if score > self.best_score or self.best_epoch == 0:
            self.best_epoch = epoch
            self.best_score = -math.inf if math.isnan(score) else score
            return True
        return False

    def should_stop(self, epoch: int) -> bool:
        """Whether ``patience`` epochs have passed since the best."""
        return epoch - self.best_epoch >= self.patience
