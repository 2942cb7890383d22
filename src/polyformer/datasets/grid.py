from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets.base import Counts
from polyformer.datasets.generated_images import GENERATED_IMAGES
from polyformer.datasets.image_fitting import OPTIONS, PROTOCOLS, Images, chosen_image, fitting_task
from polyformer.datasets.public_files import Contents, PublicDataset, check_counts
from polyformer.datasets.sources import RemoteFile
from polyformer.files import GET_AGAIN, reading
from polyformer.formats.number_files import read_mat
from polyformer.graph import Graph
from polyformer.reporter import SILENT, Reporter
from polyformer.tasks import Task

__all__ = ["GRID_2D", "GridImages"]


@dataclass(frozen=True, eq=False)
class GridImages(PublicDataset):
    """The images of the paper's synthetic experiment: 100 × 100 pixels joined to their four neighbours.

    The name without options gives the grid with all 50 images as features and without labels.
    ``2Dgrid:image=3,filter=band`` is the experiment on one image: its pixels as the one feature, the filtered image
    (see :func:`polyformer.datasets.image_fitting.filter_targets`) as real-valued labels, and the interior pixels to
    train on. In the protocol ``fit`` the same pixels are used for validation and testing, as in the paper, which asks
    which filters a model can express. Without the file, the experiment is that of ``generated-images``, and the task
    has that name.
    """

    options = OPTIONS

    def images(self, root: Path | None = None, reporter: Reporter = SILENT) -> Images:
        """Graph, signals and interior pixels."""
        return self._images(self.fetch(root, reporter))

    def read(self, paths: Mapping[str, Path]) -> Contents:
        return _without_labels(self._images(paths))

    def load(self, root: Path | None, protocol: str, *, reporter: Reporter = SILENT, **options: Any) -> Task:
        if not options:
            return super().load(root, protocol, reporter=reporter)
        image = chosen_image(self.name, options, self.counts.features)
        if self._missing(self._located(root)):
            return GENERATED_IMAGES.load(root, protocol, **options)
        paths = self.fetch(root, reporter)
        images = self._images(paths)
        check_counts(self, _without_labels(images), next(iter(paths.values())).parent)
        return fitting_task(self.name, images, image, protocol, options)

    def _images(self, paths: Mapping[str, Path]) -> Images:
        path = paths[self.files[0].path]
        arrays = read_mat(path, ["A", "F", "mask"])
        with reading(path, GET_AGAIN):
            signals = np.asarray(arrays["F"], np.float64)
            interior = np.asarray(arrays["mask"]).ravel() != 0
            rows, columns = np.nonzero(arrays["A"])
        return Images(Graph(np.stack([rows, columns]), signals, len(signals)), signals, interior)


def _without_labels(images: Images) -> Contents:
    return Contents(images.graph, np.full(images.graph.num_nodes, -1, np.int64), {name: [] for name in PROTOCOLS})


GRID_2D = GridImages(
    name="2Dgrid",
    folder="2Dgrid",
    files=(RemoteFile("raw/2Dgrid.mat"),),
    citation="He et al., BernNet: learning arbitrary graph spectral filters via Bernstein approximation, NeurIPS 2021",
    counts=Counts(nodes=10_000, edges=19_800, features=50, classes=0),
    protocols=PROTOCOLS,
    metric="r2",
    advice="It cannot be downloaded from here; 2Dgrid.mat comes with the code of Specformer, among its raw data. "
    "Without it, 2Dgrid:image=…,filter=… takes generated images.",
)
