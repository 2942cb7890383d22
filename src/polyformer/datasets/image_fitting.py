"""The paper's synthetic experiment: images on a grid, filtered by pairs of node-wise filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.fft
import scipy.sparse as sp

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.registry import Registry
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["FILTERS", "OPTIONS", "PROTOCOLS", "Images", "Response", "chosen_image", "filter_targets", "fitting_task"]

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

OPTIONS, PROTOCOLS = ("image", "filter"), ("interior", "fit")

_DEGREE = 64
"""Chebyshev expansions of this degree give every response above to 1e-15; their last coefficients are 1e-16."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images on one grid: (N, n) float64 pixel values in [0, 1], and the pixels on which errors are computed."""

    graph: Graph
    signals: np.ndarray
    interior: np.ndarray


def chosen_image(name: str, options: Mapping[str, Any], count: int) -> int:
    """The number of the image in the options; refuses a wrong image or filter before any work begins."""
    FILTERS[str(options.get("filter", "low"))]
    image = options.get("image", 0)
    if not isinstance(image, int) or isinstance(image, bool) or not 0 <= image < count:
        raise InvalidParameter(f"'image' of {name} must be a whole number from 0 to {count - 1}. Got {image!r}.")
    return image


def fitting_task(name: str, images: Images, image: int, protocol: str, options: Mapping[str, Any]) -> Task:
    """The experiment on one image: its pixels as the one feature, the filtered image as real-valued labels.

    The interior pixels are for training; in the protocol ``fit`` also for validation and testing.

    Args:
        image: a column of the signals.
    """
    signal = images.signals[:, [image]]
    labels = filter_targets(images.graph, signal, str(options.get("filter", "low")))[:, 0]
    nodes, nothing = np.flatnonzero(images.interior), np.empty(0, np.int64)
    split = Split(nodes, nodes, nodes, fit=True) if protocol == "fit" else Split(nodes, nothing, nothing)
    return Task(name, images.graph.with_features(signal), labels, [split], protocol, "r2")


def filter_targets(graph: Graph, signals: np.ndarray, name: str) -> np.ndarray:
    r"""The targets of node-wise filters: :math:`z_i = (U h_1(\Lambda) U^\top x)_i` where :math:`x_i < 0.5`, else h₂.

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

    ``chebinterpolate`` of numpy multiplies by a matrix of polynomial values and loses two digits near the ends.
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
