from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["EarlyStopping"]


@dataclass
class EarlyStopping:
    """Remembers the best validation score; only a strictly better one replaces it: greater, or smaller of a loss.

    Example:
        >>> stopping = EarlyStopping(patience=2)
        >>> [stopping.update(epoch, score) for epoch, score in enumerate([0.5, 0.7, 0.7, 0.6], start=1)]
        [True, True, False, False]
        >>> stopping.best_epoch, stopping.should_stop(4)
        (2, True)
        >>> loss = EarlyStopping(patience=2, larger_is_better=False)
        >>> [loss.update(epoch, score) for epoch, score in enumerate([0.5, 0.7, 0.4], start=1)], loss.best_score
        ([True, False, True], 0.4)
    """

    patience: int
    larger_is_better: bool = True
    best_epoch: int = 0
    best_score: float = math.nan

    def update(self, epoch: int, score: float) -> bool:
        """Whether this epoch is the best so far. A score that is not a number never is, except at the very start."""
        if self.best_epoch == 0 or self._is_better(score):
            self.best_epoch, self.best_score = epoch, score
            return True
        return False

    def _is_better(self, score: float) -> bool:
        if not math.isfinite(self.best_score):
            return math.isfinite(score)
        return score > self.best_score if self.larger_is_better else score < self.best_score

    def should_stop(self, epoch: int) -> bool:
        """Whether ``patience`` epochs have passed since the best."""
        return epoch - self.best_epoch >= self.patience
