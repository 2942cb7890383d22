from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
import scipy.sparse as sp

from polyformer.datasets.arrays import read_mat, reading
from polyformer.datasets.base import Counts
from polyformer.datasets.published import Contents, PublishedDataset, check_counts
from polyformer.datasets.sources import RemoteFile
from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.progress import Stages
from polyformer.registry import Registry
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["FILTERS", "GRID_2D", "GridImages", "Images", "filter_targets"]

Response = Callable[[np.ndarray], np.ndarray]

FILTERS: Registry[tuple[Response, Response]] = Registry(
    "filter",
    {
        "low": (lambda lam: np.exp(-5 * lam**2), lambda lam: np.exp(-20 * lam**2)),
        "high": (lambda lam: 1 - np.exp(-5 * lam**2), lambda lam: 1 - np.exp(-20 * lam**2)),
        "band": (lambda lam: np.exp(-5 * (lam - 1) ** 2), lambda lam: np.exp(-20 * (lam - 1) ** 2)),
        "rejection": (lambda lam: 1 - np.exp(-5 * (lam - 1) ** 2), lambda lam: 1 - np.exp(-20 * (lam - 1) ** 2)),
        "low-high": (lambda lam: np.exp(-10 * lam**2), lambda lam: 1 - np.exp(-10 * lam**2)),
        "band-rejection": (lambda lam: np.exp(-10 * (lam - 1) ** 2), lambda lam: 1 - np.exp(-10 * (lam - 1) ** 2)),
    },
)
"""The paper's six pairs h₁, h₂ of responses to λ in [0, 2]."""

_DEGREE = 64
"""Chebyshev expansions of this degree give every response above to 1e-15; their last coefficients are 1e-16."""


@dataclass(frozen=True, eq=False)
class Images:
    """Fifty images on one grid: (N, 50) float64 pixel values in [0, 1], and the pixels on which errors are taken."""

    graph: Graph
    signals: np.ndarray
    interior: np.ndarray


def filter_targets(graph: Graph, signals: np.ndarray, name: str) -> np.ndarray:
    r"""What node-wise filters should learn: :math:`z_i = (U h_1(\Lambda) U^\top x)_i` where :math:`x_i < 0.5`, else h₂.

    Args:
        signals: (N, n) real signals x, one a column.
        name: one of ``FILTERS``.

    Example:
        >>> path = Graph([[0, 1, 2], [1, 2, 3]])
        >>> filter_targets(path, np.array([[0.0], [1.0], [0.0], [1.0]]), "low").round(3).ravel()
        array([0.374, 0.569, 0.589, 0.403])
    """
    first, second = FILTERS[name]
    shifted = -Operator(graph).to_scipy(np.float64)  # L̂ - I, whose eigenvalues λ - 1 lie in [-1, 1]
    filtered = [_chebyshev_sum(shifted, signals.astype(np.float64), _expand(h)) for h in (first, second)]
    return np.where(signals < 0.5, filtered[0], filtered[1])


def _expand(response: Response) -> np.ndarray:
    """Chebyshev coefficients of a response to λ = 1 + x, by a cosine transform of its values at Chebyshev points.

    ``numpy``'s ``chebinterpolate`` sums with a matrix of polynomial values and loses two digits near the ends.
    """
    num_points = _DEGREE + 1
    angles = np.pi * (np.arange(num_points) + 0.5) / num_points
    coefficients = np.asarray(scipy.fft.dct(response(1 + np.cos(angles)), type=2)) / num_points
    coefficients[0] /= 2
    return coefficients


def _chebyshev_sum(operator: sp.csr_matrix, signals: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Σ_k c_k T_k(P) x by the three-term recurrence."""
    before, current = signals, operator @ signals
    total = coefficients[0] * before + coefficients[1] * current
    for coefficient in coefficients[2:]:
        before, current = current, 2 * (operator @ current) - before
        total += coefficient * current
    return np.asarray(total)


@dataclass(frozen=True, eq=False)
class GridImages(PublishedDataset):
    """The images of the paper's synthetic experiment: 100 × 100 pixels joined to their four neighbours.

    On its own the name gives the grid with all 50 images as features and nothing to train on.
    ``2Dgrid:image=3,filter=band`` is the experiment on one image: its pixels as the one feature, the filtered image
    (see :func:`filter_targets`) as real-valued labels, and the interior pixels to train on. By the protocol ``fit``
    they are also those to select by and to test on, as in the paper: it asks which filters a model can express.
    """

    options = ("image", "filter")

    def images(self, root: Path | None = None, progress: Stages | None = None) -> Images:
        """Graph, signals and interior pixels."""
        return self._images(self.fetch(root, progress))

    def read(self, paths: Mapping[str, Path]) -> Contents:
        return _without_labels(self._images(paths))

    def load(self, root: Path | None, protocol: str, *, progress: Stages | None = None, **options: Any) -> Task:
        if not options:
            return super().load(root, protocol, progress=progress)
        filter_name = str(options.get("filter", "low"))
        FILTERS[filter_name]  # an unknown name is refused before anything is read
        paths = self.fetch(root, progress)
        images = self._images(paths)
        check_counts(self, _without_labels(images), next(iter(paths.values())).parent)
        image, count = options.get("image", 0), images.signals.shape[1]
        if not isinstance(image, int) or isinstance(image, bool) or not 0 <= image < count:
            raise InvalidParameter(
                f"'image' of {self.name} must be a whole number from 0 to {count - 1}. Got {image!r}."
            )
        signal = images.signals[:, [image]]
        labels = filter_targets(images.graph, signal, filter_name)[:, 0]
        nodes, nothing = np.flatnonzero(images.interior), np.empty(0, np.int64)
        split = Split(nodes, nodes, nodes, fit=True) if protocol == "fit" else Split(nodes, nothing, nothing)
        return Task(self.name, images.graph.with_features(signal), labels, [split], protocol, "r2")

    def _images(self, paths: Mapping[str, Path]) -> Images:
        path = paths[self.files[0].path]
        arrays = read_mat(path, ["A", "F", "mask"])
        with reading(path):
            signals = np.asarray(arrays["F"], np.float64)
            interior = np.asarray(arrays["mask"]).ravel() != 0
            rows, columns = np.nonzero(arrays["A"])
        return Images(Graph(np.stack([rows, columns]), signals, len(signals)), signals, interior)


def _without_labels(images: Images) -> Contents:
    return Contents(images.graph, np.full(images.graph.num_nodes, -1, np.int64), {"interior": [], "fit": []})


GRID_2D = GridImages(
    name="2Dgrid",
    folder="2Dgrid",
    files=(RemoteFile("raw/2Dgrid.mat"),),
    citation="He et al., BernNet: learning arbitrary graph spectral filters via Bernstein approximation, NeurIPS 2021",
    counts=Counts(nodes=10_000, edges=19_800, features=50, classes=0),
    protocols=("interior", "fit"),
    advice="It cannot be downloaded from here; 2Dgrid.mat comes with the code of Specformer, among its raw data.",
)
