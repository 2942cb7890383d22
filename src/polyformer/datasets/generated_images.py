from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets.base import Counts, Dataset
from polyformer.datasets.image_fitting import OPTIONS, PROTOCOLS, Images, chosen_image, fitting_task
from polyformer.datasets.lattice import lattice_edges
from polyformer.graph import Graph
from polyformer.reporter import SILENT, Reporter
from polyformer.tasks import Task

__all__ = ["GENERATED_IMAGES", "GeneratedImages", "generate_image", "generate_images"]

_SIDE, _COUNT, _BORDER = 100, 50, 2
_LEAVES, _LEAST_RADIUS, _MOST_RADIUS = 400, 3.0, 40.0


class GeneratedImages(Dataset):
    """Fifty generated images of 100 × 100 pixels, for the synthetic experiment where ``2Dgrid`` is not at hand.

    Like natural images, they have objects of all sizes that hide each other, sharp edges, smooth shades and a texture
    (see :func:`generate_image`). They are not the published images, so scores on them differ. Graph, interior pixels,
    targets, options and protocols are those of ``2Dgrid``, as in ``generated-images:image=3,filter=band``.
    """

    name = "generated-images"
    citation = "Lee, Mumford and Huang, Occlusion models for natural images, IJCV 2001 (the dead leaves model)"
    counts = Counts(nodes=_SIDE**2, edges=2 * _SIDE * (_SIDE - 1), features=_COUNT, classes=0)
    metric = "r2"
    protocols = PROTOCOLS
    options = OPTIONS

    def status(self, root: Path | None) -> str:
        return "built in"

    def load(self, root: Path | None, protocol: str, *, reporter: Reporter = SILENT, **options: Any) -> Task:
        """Generate all images, or the experiment on one of them."""
        if not options:
            graph = generate_images(range(_COUNT)).graph
            return Task(self.name, graph, np.full(graph.num_nodes, -1, np.int64), [], protocol)
        image = chosen_image(self.name, options, _COUNT)
        return fitting_task(self.name, generate_images([image]), 0, protocol, options)


def generate_images(numbers: Sequence[int]) -> Images:
    """The images with these numbers as signals on the grid; the same in every call."""
    signals = np.stack([generate_image(number).ravel() for number in numbers], axis=1)
    interior = np.zeros((_SIDE, _SIDE), bool)
    interior[_BORDER:-_BORDER, _BORDER:-_BORDER] = True
    return Images(Graph(lattice_edges(_SIDE, _SIDE), signals), signals, interior.ravel())


def generate_image(seed: int, side: int = _SIDE) -> np.ndarray:
    """An image like natural ones: (side, side) values in [0, 1], with 0 and 1 among them.

    Discs of random grey cover each other (the dead leaves model). Their radii r have the density r⁻³, which gives edges
    at all scales. A smooth field shades the discs, and a field whose amplitude falls as 1/f adds texture.

    Example:
        >>> image = generate_image(0)
        >>> image.shape, float(image.min()), float(image.max())
        ((100, 100), 0.0, 1.0)
    """
    random = np.random.default_rng((seed, side))
    place = np.arange(side)
    image = np.full((side, side), random.uniform())
    for _ in range(_LEAVES):
        # Radii by inversion of the distribution function of the density r⁻³ between the two radii.
        share = random.uniform()
        radius = (_LEAST_RADIUS**-2 - share * (_LEAST_RADIUS**-2 - _MOST_RADIUS**-2)) ** -0.5
        y, x = random.uniform(-radius, side + radius, 2)
        rows, columns = (np.abs(place - centre) < radius for centre in (y, x))
        leaf = (place[rows, None] - y) ** 2 + (place[columns] - x) ** 2 < radius**2
        image[np.ix_(rows, columns)] = np.where(leaf, random.uniform(), image[np.ix_(rows, columns)])
    image += 0.2 * _field(random, side, 2.0) + 0.06 * _field(random, side, 1.0)
    image -= image.min()
    return np.asarray(image / image.max())


def _field(random: np.random.Generator, side: int, power: float) -> np.ndarray:
    """A random field of unit variance whose amplitude falls with the frequency f as f^-power."""
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.fftfreq(side)[None])
    frequency[0, 0] = np.inf  # the field has mean zero
    noise = np.fft.fft2(random.standard_normal((side, side)))
    field = np.fft.ifft2(noise * frequency**-power).real
    return np.asarray(field / field.std())


GENERATED_IMAGES = GeneratedImages()
