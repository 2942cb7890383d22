from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from polyformer.errors import InvalidParameter
from polyformer.metrics import METRICS
from polyformer.parameter_checks import check_at_least, check_not_negative, check_rates
from polyformer.settings import setting

__all__ = ["AUTO_BATCH_SIZE", "WIDE_FEATURES", "TrainingSettings"]

AUTO_BATCH_SIZE = 256
"""What the batch size ``auto`` is, or at least is where features are wide."""

WIDE_FEATURES = 1024
"""More feature columns than this make stored tokens heavy."""


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained, whichever it is."""

    lr: float = setting(1e-3, "learning rate of Adam")
    weight_decay: float = setting(0.0, "L2 penalty inside Adam")
    optimizer: Literal["adam", "lbfgs"] = setting(
        "adam", "lbfgs makes an epoch 100 iterations of L-BFGS on a full batch, without rates or decay: for exact fits"
    )
    schedule: Literal["constant", "cosine"] = setting(
        "constant", "cosine lowers the learning rates to zero over the epochs: half a period"
    )
    warmup: int = setting(0, "the learning rates rise evenly over so many first epochs")
    epochs: int = setting(200, "at most so many passes over the training nodes")
    patience: int = setting(30, "stop after so many epochs without a better validation score")
    batch_size: int | Literal["auto", "full"] = setting(
        "auto", "training nodes per optimiser step, or full; auto is 256, or more where features are wide"
    )
    shuffle: Literal["nodes", "batches"] = setting(
        "nodes", "what is shuffled each epoch: the nodes, or the order of fixed batches as in the paper's large graphs"
    )
    class_weights: Literal["none", "balanced"] = setting("none", "balanced weighs rare classes up in the loss")
    targets: Literal["standard", "raw"] = setting(
        "standard", "learn real-valued labels in units of their deviation around their mean, or as they are"
    )
    scale_features: Literal["auto", "none"] = setting(
        "auto", "bring numeric columns to a common scale; auto leaves data sets known by name as they were published"
    )
    label_input: float = setting(
        0.0,
        "known labels as input: the share of training labels that a step hides and learns from, e.g. 0.5; 0 is off",
    )
    label_masks: int = setting(
        8, "how many sets of hidden labels a model on stored tokens draws; others draw one for every step"
    )
    metric: str = setting("default", f"select and report by another metric: {', '.join(METRICS)}")

    def __post_init__(self) -> None:
        for name in ("epochs", "patience"):
            if getattr(self, name) < 1:
                raise InvalidParameter(f"'{name}' must be 1 or more. Got {getattr(self, name)}.")
        if isinstance(self.batch_size, int) and self.batch_size < 1:
            raise InvalidParameter(f"'batch_size' must be 1 or more, 'auto' or 'full'. Got {self.batch_size}.")
        if self.metric != "default":
            METRICS[self.metric]
        if not 0 <= self.label_input < 1:
            raise InvalidParameter(f"'label_input' must lie in [0, 1). Got {self.label_input}.")
        check_at_least(1, label_masks=self.label_masks)
        check_rates(lr=self.lr)
        check_at_least(0, warmup=self.warmup)
        check_not_negative(weight_decay=self.weight_decay)

    def rate_factor(self, epoch: int) -> float:
        """The factor of the learning rates in an epoch; the first epoch is number 1.

        >>> [round(TrainingSettings(schedule="cosine", epochs=4).rate_factor(epoch), 2) for epoch in (1, 2, 3, 4)]
        [1.0, 0.85, 0.5, 0.15]
        >>> [TrainingSettings(warmup=3).rate_factor(epoch) for epoch in (1, 2, 3, 4)]
        [0.25, 0.5, 0.75, 1.0]
        """
        if epoch <= self.warmup:
            return epoch / (self.warmup + 1)
        if self.schedule == "constant":
            return 1.0
        return (1 + math.cos(math.pi * (epoch - 1 - self.warmup) / max(1, self.epochs - self.warmup))) / 2

    def resolve(self, num_train: int, num_features: int) -> TrainingSettings:
        """The same with a number for ``auto`` and ``full``.

        Small batches reach a score soonest. But wide features are best projected before they are propagated, which
        costs a whole propagation per step: then an epoch has at most eight steps.
        """
        size = self.batch_size
        if self.optimizer == "lbfgs" and isinstance(size, int) and size < num_train:
            raise InvalidParameter(f"'optimizer=lbfgs' needs full batches. Got batch_size={size}. Set batch_size=full.")
        if size == "full" or self.optimizer == "lbfgs":
            size = num_train
        elif size == "auto":
            size = AUTO_BATCH_SIZE if num_features <= WIDE_FEATURES else max(AUTO_BATCH_SIZE, -(-num_train // 8))
        return replace(self, batch_size=min(size, num_train))
