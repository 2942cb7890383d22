"""Training, validation and test nodes, and the protocols by which they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from polyformer.errors import InvalidData, InvalidParameter

__all__ = [
    "BALANCED_SEEDS",
    "Split",
    "balanced_split",
    "has_label",
    "hold_out",
    "ordered_split",
    "split_from_masks",
    "uniform_split",
]

BALANCED_SEEDS = (
    1941488137,
    4198936517,
    983997847,
    4023022221,
    4019585660,
    2108550661,
    1648766618,
    629014539,
    3212139042,
    2424918363,
)
"""The ten seeds behind the paper's runs on Citeseer, Pubmed, CS and Physics."""


@dataclass(frozen=True, eq=False)
class Split:
    """Ids (int64) of the nodes to train on, to select by and to test on; ``val`` and ``test`` may be empty.

    Attributes:
        fit: whether all three parts are the same nodes: the question then is how well a model fits, not how well it
            generalises.
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    fit: bool = field(default=False, kw_only=True)

    def check(self, labels: np.ndarray) -> None:
        """Refuse a split that cannot be used with these labels."""
        num_nodes = len(labels)
        labelled = has_label(labels)
        for name, nodes in (("train", self.train), ("val", self.val), ("test", self.test)):
            if nodes.ndim != 1 or nodes.dtype.kind not in "iu":
                raise InvalidData(f"The {name} nodes must be a list of node ids. Got {nodes.dtype} {nodes.shape}.")
            wrong = nodes[(nodes < 0) | (nodes >= num_nodes)]
            if len(wrong):
                raise InvalidData(f"The {name} nodes must lie in 0..{num_nodes - 1}. Got {int(wrong[0])}.")
            bare = nodes[~labelled[nodes]]
            if len(bare):
                raise InvalidData(
                    f"Node {int(bare[0])} is in the {name} split but has no label. Label it or take it out."
                )
        if len(self.train) == 0:
            raise InvalidData("The split has no training nodes. Label some nodes for training.")
        if self.fit:
            if not np.array_equal(self.train, self.val) or not np.array_equal(self.train, self.test):
                raise InvalidData("The three parts of a split that asks how well a model fits must be the same nodes.")
            return
        nodes, counts = np.unique(np.concatenate([self.train, self.val, self.test]), return_counts=True)
        if (counts > 1).any():
            raise InvalidData(
                f"Node {int(nodes[counts > 1][0])} is in the split more than once. Each node belongs to one part."
            )


def has_label(labels: np.ndarray) -> np.ndarray:
    """(N,) bool: whether each node has a label, in (N,) classes with -1 or values with NaN for unlabelled nodes.

    >>> has_label(np.array([2, -1, 0])), has_label(np.array([0.5, np.nan]))
    (array([ True, False,  True]), array([ True, False]))
    """
    return ~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0


def split_from_masks(train: np.ndarray, val: np.ndarray, test: np.ndarray) -> Split:
    """The split that three boolean masks over the nodes describe."""
    return Split(np.flatnonzero(train), np.flatnonzero(val), np.flatnonzero(test))


def balanced_split(labels: np.ndarray, seed: int, train: float = 0.6, val: float = 0.2) -> Split:
    """The paper's class-balanced split: a seed gives the same nodes as in the paper's published runs.

    Training gets round(train·N/C) nodes *of each class* (all nodes of a smaller class), validation gets round(val·N) of
    the other nodes, and testing gets the rest. Results are not comparable with results on uniform splits.
    """
    labelled = np.flatnonzero(has_label(labels))
    num_nodes, num_classes = len(labelled), int(labels.max()) + 1
    if not 0 <= seed < 2**32:
        raise InvalidParameter(f"'seed' of balanced splits must lie in 0..{2**32 - 1}. Got {seed}. Use a smaller seed.")
    random = np.random.RandomState(seed)  # the published splits come from this generator
    per_class = round(train * num_nodes / num_classes)
    class_nodes = []
    for label in range(num_classes):
        members = np.flatnonzero(labels == label)
        class_nodes.append(members if len(members) < per_class else random.choice(members, per_class, replace=False))
    train_nodes = np.concatenate(class_nodes)
    rest = np.setdiff1d(labelled, train_nodes)
    val_nodes = random.choice(rest, min(len(rest), round(val * num_nodes)), replace=False)
    return Split(np.sort(train_nodes), np.sort(val_nodes), np.setdiff1d(rest, val_nodes))


def uniform_split(labels: np.ndarray, seed: int | Sequence[int], train: float = 0.6, val: float = 0.2) -> Split:
    """Cut the labelled nodes at random, 60/20/20 by default; a list of numbers as seed gives a stream of its own."""
    labelled = np.flatnonzero(has_label(labels))
    order = np.random.default_rng(seed).permutation(labelled)
    first, second = round(train * len(order)), round((train + val) * len(order))
    return Split(np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:]))


def ordered_split(values: np.ndarray, nodes: np.ndarray, train: float = 0.6, val: float = 0.2) -> Split:
    """The nodes with the smallest values train, those with the largest test; equal values stay together.

    Args:
        values: (N,) values to sort by, e.g. the times at which nodes appeared.
        nodes: ids of the nodes to split.

    >>> split = ordered_split(np.array([3.0, 1.0, 1.0, 2.0, 5.0]), np.arange(5))
    >>> split.train.tolist(), split.val.tolist(), split.test.tolist()
    ([1, 2, 3], [0], [4])
    """
    order = nodes[np.argsort(values[nodes], kind="stable")]
    borders = np.flatnonzero(np.diff(values[order]) > 0) + 1
    if len(borders) < 2:
        raise InvalidData(
            f"A split by time needs three different times at least. Got {len(borders) + 1} among {len(nodes)} labelled "
            f"nodes. Split by another column."
        )
    first = borders[:-1][np.abs(borders[:-1] - train * len(order)).argmin()]
    later = borders[borders > first]
    second = later[np.abs(later - (train + val) * len(order)).argmin()]
    return Split(np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:]))


def hold_out(nodes: np.ndarray, labels: np.ndarray, seed: int, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Draw a share of the nodes of each class, at least one node of two and never all: (kept nodes, drawn nodes)."""
    if not 0 < share < 1:
        raise InvalidParameter(f"'share' must lie between 0 and 1. Got {share}. Try 0.2.")
    random = np.random.default_rng(seed)
    nodes = random.permutation(nodes)
    groups = (
        [nodes] if labels.dtype.kind == "f" else [nodes[labels[nodes] == label] for label in np.unique(labels[nodes])]
    )
    drawn = np.concatenate([group[: min(max(1, round(share * len(group))), len(group) - 1)] for group in groups])
    if len(drawn) == 0:
        raise InvalidData(
            f"Validation nodes cannot be drawn from {len(nodes)} training nodes: there are too few. Name validation "
            f"nodes (val in the split column of a table, val=… in Python) or label more nodes for training."
        )
    return np.sort(np.setdiff1d(nodes, drawn)), np.sort(drawn)
