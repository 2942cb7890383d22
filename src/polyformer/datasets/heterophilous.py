from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from polyformer.datasets.base import Counts
from polyformer.datasets.public_files import Contents, PublicDataset
from polyformer.datasets.sources import RemoteFile
from polyformer.errors import FileCorrupt
from polyformer.files import GET_AGAIN, read_npz
from polyformer.graph import Graph
from polyformer.graph_checks import Features
from polyformer.splits import split_from_masks

__all__ = [
    "AMAZON_RATINGS",
    "CHAMELEON",
    "MINESWEEPER",
    "QUESTIONS",
    "ROMAN_EMPIRE",
    "SQUIRREL",
    "TOLOKERS",
    "Heterophilous",
]

URL = "https://github.com/yandex-research/heterophilous-graphs/raw/main/data"
_MASKS = ("train_masks", "val_masks", "test_masks")


@dataclass(frozen=True, eq=False)
class Heterophilous(PublicDataset):
    """Graphs whose neighbours often differ in class, one npz file each, with ten fixed splits.

    Edges are stored once and used in both directions. Features are used as they are; wide ones that are mostly zero
    (filtered Chameleon and Squirrel: under 1 % non-zero) are kept sparse. Two-class sets are judged by ROC-AUC.
    """

    def read(self, paths: Mapping[str, Path]) -> Contents:
        path = paths[self.files[0].path]
        arrays = read_npz(path, ["node_features", "node_labels", "edges", *_MASKS], advice=GET_AGAIN)
        if len({len(np.atleast_1d(arrays[key])) for key in _MASKS}) > 1:
            raise FileCorrupt(f"'{path}' has not as many masks for training as for validation and test. {GET_AGAIN}")
        graph = Graph(arrays["edges"].T, _compact(arrays["node_features"]), len(arrays["node_labels"]))
        splits = [split_from_masks(*masks) for masks in zip(*(arrays[key] for key in _MASKS), strict=True)]
        return Contents(graph, arrays["node_labels"], {"fixed": splits})


def _compact(features: np.ndarray) -> Features:
    """The features in CSR form if that is much smaller, else as they are."""
    mostly_zero = features.shape[1] > 256 and np.count_nonzero(features) < 0.05 * features.size
    return sp.csr_matrix(features) if mostly_zero else features


def _entry(name: str, counts: Counts, sha256: str, metric: str = "accuracy") -> Heterophilous:
    file = name.replace("-", "_") + ".npz"
    return Heterophilous(
        name=name,
        folder=name,
        files=(RemoteFile(f"raw/{file}", f"{URL}/{file}", sha256),),
        citation="Platonov et al., A critical look at the evaluation of GNNs under heterophily, ICLR 2023",
        counts=counts,
        protocols=("fixed", "uniform"),
        metric=metric,
    )


CHAMELEON = _entry(
    "chameleon_filtered",
    Counts(nodes=890, edges=8_854, features=2_325, classes=5),
    "bf46f07e1fb5249280447e5fe3100f3e82fc4b93ad1e13ffcfdec924b6ac0bb5",
)
SQUIRREL = _entry(
    "squirrel_filtered",
    Counts(nodes=2_223, edges=46_998, features=2_089, classes=5),
    "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7",
)
MINESWEEPER = _entry(
    "minesweeper",
    Counts(nodes=10_000, edges=39_402, features=7, classes=2),
    "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3",
    "roc_auc",
)
TOLOKERS = _entry(
    "tolokers",
    Counts(nodes=11_758, edges=519_000, features=10, classes=2),
    "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667",
    "roc_auc",
)
ROMAN_EMPIRE = _entry(
    "roman-empire",
    Counts(nodes=22_662, edges=32_927, features=300, classes=18),
    "a58ba741d123bf892fe5c872138d07463d75a2e9012360b8dd78ac2d4766d428",
)
QUESTIONS = _entry(
    "questions",
    Counts(nodes=48_921, edges=153_540, features=301, classes=2),
    "757ebd772bab1475c4dd951ca9e364400c6db161656cff9d21780ee874cf3074",
    "roc_auc",
)
AMAZON_RATINGS = _entry(
    "amazon-ratings",
    Counts(nodes=24_492, edges=93_050, features=300, classes=5),
    "4c3a3e3b9d9f6cba0fede4625a00aad8c5721c1a36ed771367f446763241c7dd",
)
