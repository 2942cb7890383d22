from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyformer.datasets import load_dataset
from polyformer.datasets.grid import FILTERS, GRID_2D, filter_targets
from polyformer.errors import InvalidParameter, UnknownName
from polyformer.graph import Graph
from polyformer.operators import Operator
from polyformer.tasks import Task

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize("name", FILTERS)
def test_targets_equal_the_exact_spectrum(name: str) -> None:
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 80, (2, 200)), num_nodes=82)  # with isolated nodes
    signals = random.random((82, 5))
    laplacian = np.eye(82) - Operator(graph).to_scipy(np.float64).toarray()
    eigenvalues, vectors = np.linalg.eigh(laplacian)
    low, high = (vectors @ (h(eigenvalues)[:, None] * (vectors.T @ signals)) for h in FILTERS[name])
    expected = np.where(signals < 0.5, low, high)
    np.testing.assert_allclose(filter_targets(graph, signals, name), expected, rtol=0, atol=2e-14)


def test_images(real_root: Path) -> None:
    images = GRID_2D.images(real_root)
    assert images.signals.shape == (10_000, 50)
    assert images.interior.sum() == 9_216
    assert 0 <= images.signals.min() <= images.signals.max() <= 1


def test_one_image_is_a_regression(real_root: Path) -> None:
    task = load_dataset("2Dgrid:image=3,filter=band", real_root)
    images = GRID_2D.images(real_root)
    assert (task.graph.num_features, task.metric, task.num_classes) == (1, "r2", 0)
    np.testing.assert_allclose(task.graph.features[:, 0], images.signals[:, 3], rtol=1e-6)
    np.testing.assert_array_equal(task.splits[0].train, np.flatnonzero(images.interior))
    np.testing.assert_array_equal(task.labels, filter_targets(images.graph, images.signals[:, [3]], "band")[:, 0])


def test_fitting_uses_the_same_pixels_throughout(real_root: Path, tmp_path: Path) -> None:
    task = load_dataset("2Dgrid:image=3,filter=band", real_root, "fit")
    task.save(tmp_path / "image")
    for split in (task.splits[0], Task.load(tmp_path / "image").splits[0]):
        assert split.fit
        np.testing.assert_array_equal(split.train, split.val)
        np.testing.assert_array_equal(split.train, split.test)


def test_wrong_options(real_root: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"'image' of 2Dgrid must be a whole number from 0 to 49\. Got 50"):
        load_dataset("2Dgrid:image=50", real_root)
    with pytest.raises(UnknownName, match=r"Unknown filter 'bandd'\. Did you mean 'band'"):
        load_dataset("2Dgrid:filter=bandd", real_root)
    with pytest.raises(UnknownName, match="has no option 'picture'"):
        load_dataset("2Dgrid:picture=1", real_root)
