"""How the outputs of a model meet labels: width of the output, loss, and scores, for classes and for real values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from polyformer.registry import Registry

if TYPE_CHECKING:  # torch is imported where a loss is computed, because a list of data sets must not wait for it
    import torch

__all__ = ["OBJECTIVES", "Binary", "Multiclass", "Objective", "Regression", "label_units"]


class Objective(ABC):
    """How model outputs meet labels: width of the output, loss, and scores that a metric can read."""

    name: str

    @abstractmethod
    def out_channels(self, num_classes: int) -> int:
        """Width of the model's output."""

    @abstractmethod
    def loss(
        self, outputs: torch.Tensor, labels: torch.Tensor, class_weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Sum of the losses of (n, out) outputs, each times the weight of its class; the mean is the sum divided by
        :meth:`normaliser`.

        Sums over slices of a batch add up to the sum over the batch; means do not.
        """

    def normaliser(self, labels: torch.Tensor, class_weights: torch.Tensor | None = None) -> float:
        """The number of nodes, or the sum of their weights."""
        return float(len(labels) if class_weights is None else class_weights[labels].sum())

    @abstractmethod
    def read(self, outputs: torch.Tensor) -> torch.Tensor:
        """Probabilities (n, C), or the predicted values (n, 1) of a regression, of (n, out) outputs."""

    def scores(self, outputs: torch.Tensor) -> np.ndarray:
        """What :meth:`read` gives, in float64, which not every device has."""
        return np.asarray(self.read(outputs.cpu().double()).numpy())

    def in_units(self, centre: float, scale: float) -> Objective:
        """The same objective for outputs that stand for ``centre + scale · output``; classes have no units."""
        return self

    def at_temperature(self, temperature: float) -> Objective:
        """The same where outputs are divided by a temperature before they become probabilities; values have none."""
        return self


class Multiclass(Objective):
    """Cross-entropy over C logits."""

    name = "multiclass"

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature

    def at_temperature(self, temperature: float) -> Multiclass:
        return Multiclass(temperature)

    def out_channels(self, num_classes: int) -> int:
        return num_classes

    def loss(
        self, outputs: torch.Tensor, labels: torch.Tensor, class_weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        from torch.nn import functional

        return functional.cross_entropy(outputs, labels, weight=class_weights, reduction="sum")

    def read(self, outputs: torch.Tensor) -> torch.Tensor:
        return (outputs / self.temperature).softmax(dim=1)


class Binary(Objective):
    """Binary cross-entropy on one logit, as in the paper's results on data sets of two classes."""

    name = "binary"

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature

    def at_temperature(self, temperature: float) -> Binary:
        return Binary(temperature)

    def out_channels(self, num_classes: int) -> int:
        return 1

    def loss(
        self, outputs: torch.Tensor, labels: torch.Tensor, class_weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        from torch.nn import functional

        weight = None if class_weights is None else class_weights[labels]
        return functional.binary_cross_entropy_with_logits(
            outputs[:, 0], labels.to(outputs.dtype), weight, reduction="sum"
        )

    def read(self, outputs: torch.Tensor) -> torch.Tensor:
        from torch import cat

        logits = outputs[:, :1] / self.temperature
        # Both from the logit: one minus a probability near one would leave no digits of the other.
        return cat([-logits, logits], dim=1).sigmoid()


class Regression(Objective):
    """Mean squared error on one value, which the model gives in units of ``scale`` around ``centre``.

    In such units, prices in the thousands and shares in the thousandths are learned at the same rate.
    """

    name = "regression"

    def __init__(self, centre: float = 0.0, scale: float = 1.0) -> None:
        self.centre, self.scale = centre, scale

    def out_channels(self, num_classes: int) -> int:
        return 1

    def loss(
        self, outputs: torch.Tensor, labels: torch.Tensor, class_weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        from torch.nn import functional

        targets = (labels - self.centre) / self.scale  # in float64, on the CPU
        return functional.mse_loss(outputs[:, 0], targets.to(outputs), reduction="sum")

    def read(self, outputs: torch.Tensor) -> torch.Tensor:
        return self.centre + self.scale * outputs[:, :1]

    def in_units(self, centre: float, scale: float) -> Regression:
        return Regression(centre, scale)


def label_units(labels: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of real-valued labels; a deviation of 1 if all labels are the same.

    >>> label_units(np.array([10.0, 14.0]))
    (12.0, 2.0)
    """
    return float(labels.mean()), float(labels.std()) or 1.0


OBJECTIVES: Registry[Objective] = Registry(
    "objective", {"multiclass": Multiclass(), "binary": Binary(), "regression": Regression()}
)
