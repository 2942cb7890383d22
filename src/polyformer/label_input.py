"""Known labels as input: the columns that a node has beside its features, and the labels that a training step hides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from polyformer.objectives import label_units

__all__ = ["KnownLabels", "LabelMask", "LabelMasks", "label_width"]

_STREAM = 3
"""Tells the random numbers of masks from others that the same seed gives."""


def label_width(num_classes: int) -> int:
    """How many columns a label takes: one a class, or two where real values are predicted (``num_classes`` is 0).

    >>> label_width(5), label_width(0)
    (5, 2)
    """
    return num_classes if num_classes else 2


@dataclass(frozen=True, eq=False)
class LabelMask:
    """Which known labels a training step hides.

    Attributes:
        hidden: (n,) bool, in the order of :attr:`KnownLabels.nodes`.
        number: the place of the mask among those that were drawn once; None for a mask of one step.
    """

    hidden: np.ndarray
    number: int | None = None


@dataclass(frozen=True, eq=False)
class KnownLabels:
    """The labels that a model is shown, as rows of L columns; all other nodes of the graph have zeros there.

    A class is a one among C columns. A real value is its standardised value and a one, which tells it from no value.
    Under a mask, real values are standardised by those that the mask shows: the mean of all values would tell of the
    hidden ones.

    Attributes:
        num_nodes: N, number of nodes of the graph.
        nodes: (n,) ids of the nodes whose labels are shown, each once.
        columns: (n, L) float32, the columns of these nodes where no mask hides any.
        values: (n,) float64, the real values themselves; None for classes.

    Example:
        >>> known = KnownLabels.of(4, np.array([3, 1]), np.array([0, 2]), num_classes=3)
        >>> known.matrix().toarray().astype(int).tolist()
        [[0, 0, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]
        >>> known.matrix(LabelMask(np.array([True, False]))).toarray().astype(int).tolist()
        [[0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    """

    num_nodes: int
    nodes: np.ndarray
    columns: np.ndarray
    values: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        num_nodes: int,
        nodes: np.ndarray,
        labels: np.ndarray,
        num_classes: int,
        units: tuple[float, float] = (0.0, 1.0),
    ) -> KnownLabels:
        """The columns of labelled nodes.

        Args:
            labels: (n,) classes from 0 on, or real values.
            num_classes: C; 0 for real values.
            units: centre and scale of real values.
        """
        ids = np.asarray(nodes, np.int64)
        if num_classes:
            columns = np.zeros((len(ids), num_classes), np.float32)
            columns[np.arange(len(ids)), labels] = 1.0
            return cls(num_nodes, ids, columns)
        values = np.asarray(labels, np.float64)
        return cls(num_nodes, ids, _standardised(values, units), values)

    @classmethod
    def none(cls, num_nodes: int, width: int) -> KnownLabels:
        """No label is shown, so that all columns are zero."""
        return cls(num_nodes, np.empty(0, np.int64), np.empty((0, width), np.float32))

    @property
    def width(self) -> int:
        """L, the number of columns."""
        return int(self.columns.shape[1])

    def on(self, num_nodes: int) -> KnownLabels:
        """The same labels in a graph that has more nodes, the additional ones without labels."""
        return replace(self, num_nodes=num_nodes)

    def shown_columns(self, mask: LabelMask | None = None) -> np.ndarray:
        """The columns of the labelled nodes, (n, L) float32; rows of labels that the mask hides are zero."""
        if mask is None:
            return self.columns
        if self.values is None:
            return self.columns * ~mask.hidden[:, None]
        columns = np.zeros_like(self.columns)
        shown = self.values[~mask.hidden]
        if len(shown):
            columns[~mask.hidden] = _standardised(shown, label_units(shown))
        return columns

    def matrix(self, mask: LabelMask | None = None) -> sp.csr_matrix:
        """The columns of all nodes, (N, L) float32; rows of labels that the mask hides are zero.

        Real values keep an entry of their own where they are zero, as they are not zero under every mask.
        """
        columns = self.shown_columns(mask)
        stored = columns != 0 if self.values is None else np.ones(columns.shape, bool)
        if mask is not None:
            stored[mask.hidden] = False
        place, column = np.nonzero(stored)
        entries = columns[place, column], (self.nodes[place], column)
        return sp.csr_matrix(entries, shape=(self.num_nodes, self.width), dtype=np.float32)

    def hidden_nodes(self, mask: LabelMask) -> np.ndarray:
        """Ids of the nodes whose labels the mask hides, sorted."""
        return np.sort(self.nodes[mask.hidden])


def _standardised(values: np.ndarray, units: tuple[float, float]) -> np.ndarray:
    """Real values in their units, and a flag: (n,) -> (n, 2) float32."""
    columns = np.ones((len(values), 2), np.float32)
    columns[:, 0] = (values - units[0]) / units[1]
    return columns


@dataclass(frozen=True)
class LabelMasks:
    """The masks of a training run, which its seed alone decides: a run that goes on hides what it would have hidden.

    Attributes:
        share: of the known labels that each mask hides, strictly between 0 and 1.
        num_known: n, number of known labels.
        seed: the seed of the run.
        count: how many masks are drawn once, of which each epoch uses one in turn; 0 draws one for every step.

    Example:
        >>> masks = LabelMasks(0.5, num_known=6, seed=0)
        >>> int(masks.of_step(epoch=1, step=0).hidden.sum()), len(masks.drawn)
        (3, 0)
    """

    share: float
    num_known: int
    seed: int
    count: int = 0

    @cached_property
    def drawn(self) -> tuple[LabelMask, ...]:
        """The masks that are drawn once."""
        return tuple(LabelMask(self._draw(number), number) for number in range(self.count))

    def of_step(self, epoch: int, step: int) -> LabelMask:
        """The mask of a step; epochs count from 1, steps from 0."""
        if self.count:
            return self.drawn[(epoch - 1) % self.count]
        return LabelMask(self._draw(epoch, step))

    def _draw(self, *place: int) -> np.ndarray:
        """(n,) bool: at least one label is hidden and at least one shown."""
        random = np.random.default_rng((self.seed, _STREAM, *place))
        number = min(max(1, round(self.share * self.num_known)), self.num_known - 1)
        hidden = np.zeros(self.num_known, bool)
        hidden[random.permutation(self.num_known)[:number]] = True
        return hidden
