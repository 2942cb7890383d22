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
    """Node ids (int64) to train on, to select by and to test on; ``val`` and ``test`` may be empty.

    Attributes:
        fit: the three are the same nodes: how well a function can be fitted is asked, not how well it generalises.
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    fit: bool = field(default=False, kw_only=True)

    def check(self, labels: np.ndarray) -> None:
        """Refuse a split that cannot be used with these labels."""
        num_nodes = len(labels)
        labelled = ~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0
        for name, nodes in (("train", self.train), ("val", self.val), ("test", self.test)):
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
            assert np.array_equal(self.train, self.val)
            assert np.array_equal(self.train, self.test)
            return
        nodes, counts = np.unique(np.concatenate([self.train, self.val, self.test]), return_counts=True)
        if (counts > 1).any():
            raise InvalidData(
                f"Node {int(nodes[counts > 1][0])} is in the split more than once. Each node belongs to one part."
            )


def split_from_masks(train: np.ndarray, val: np.ndarray, test: np.ndarray) -> Split:
    """From three boolean masks over the nodes."""
    return Split(np.flatnonzero(train), np.flatnonzero(val), np.flatnonzero(test))


def balanced_split(labels: np.ndarray, seed: int, train: float = 0.6, val: float = 0.2) -> Split:
    """The paper's class-balanced split: the same nodes for the same seed as in its published runs.

    round(train·N/C) training nodes *per class* (a smaller class goes to training whole), then round(val·N) validation
    nodes of the rest, the others for testing. Not comparable with results on uniform splits.
    """
    num_nodes, num_classes = len(labels), int(labels.max()) + 1
    random = np.random.RandomState(seed)  # the published splits come from this generator
    per_class = round(train * num_nodes / num_classes)
    class_nodes = []
    for label in range(num_classes):
        members = np.flatnonzero(labels == label)
        class_nodes.append(members if len(members) < per_class else random.choice(members, per_class, replace=False))
    train_nodes = np.concatenate(class_nodes)
    rest = np.setdiff1d(np.arange(num_nodes), train_nodes)
    val_nodes = random.choice(rest, round(val * num_nodes), replace=False)
    return Split(np.sort(train_nodes), np.sort(val_nodes), np.setdiff1d(rest, val_nodes))


def uniform_split(labels: np.ndarray, seed: int | Sequence[int], train: float = 0.6, val: float = 0.2) -> Split:
    """Labelled nodes cut at random, 60/20/20 unless said otherwise; a list of numbers seeds a stream of its own."""
    labelled = np.flatnonzero(~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0)
    order = np.random.default_rng(seed).permutation(labelled)
    first, second = round(train * len(order)), round((train + val) * len(order))
    return Split(np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:]))


def ordered_split(values: np.ndarray, nodes: np.ndarray, train: float = 0.6, val: float = 0.2) -> Split:
    """The nodes with the smallest values train, those with the largest test; equal values stay together.

    Args:
        values: (N,) e.g. when a node appeared.
        nodes: ids to be split.

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
    """Draw ``share`` of the nodes, class by class: each keeps some, and gives one if it has two: (kept, drawn)."""
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
            f"Validation nodes cannot be drawn from {len(nodes)} training nodes: there are too few. Name them (val in "
            f"the split column of a table, val=… in Python) or label more nodes for training."
        )
    return np.sort(np.setdiff1d(nodes, drawn)), np.sort(drawn)
