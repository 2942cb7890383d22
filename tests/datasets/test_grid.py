from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyformer.datasets import load_dataset
from polyformer.datasets.generated_images import generate_image, generate_images
from polyformer.datasets.grid import GRID_2D
from polyformer.datasets.image_fitting import FILTERS, filter_targets
from polyformer.errors import DataNotFound, InvalidParameter, UnknownName
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


@pytest.mark.parametrize("protocol", GRID_2D.protocols)
def test_without_the_file_the_images_are_generated_and_named_so(protocol: str) -> None:
    task = load_dataset("2Dgrid:image=3,filter=band", protocol=protocol)
    assert (task.name, task.protocol, task.metric) == ("generated-images", protocol, "r2")
    same = load_dataset("generated-images:image=3,filter=band", protocol=protocol)
    assert task.graph.fingerprint == same.graph.fingerprint
    signal = generate_image(3).reshape(-1, 1)
    np.testing.assert_allclose(task.graph.features, signal, rtol=1e-6)
    np.testing.assert_array_equal(task.labels, filter_targets(task.graph, signal, "band")[:, 0])
    split = task.splits[0]
    assert (len(split.train), split.fit) == (9_216, protocol == "fit")
    with pytest.raises(DataNotFound):  # the images themselves have no stand-in
        load_dataset("2Dgrid")
    with pytest.raises(InvalidParameter, match="from 0 to 49"):
        load_dataset("generated-images:image=50")


def test_generated_images_are_on_the_published_grid(real_root: Path) -> None:
    published, generated = GRID_2D.images(real_root), generate_images([0])
    assert generated.graph.structure_fingerprint == published.graph.structure_fingerprint
    np.testing.assert_array_equal(generated.interior, published.interior)


def test_generated_images_look_natural() -> None:
    images = np.stack([generate_image(number) for number in range(4)])
    assert images.min() == 0
    assert images.max() == 1
    assert len({image.tobytes() for image in images}) == 4
    dark = (images < 0.5).mean(axis=(1, 2))
    assert 0.2 < dark.min() <= dark.max() < 0.8  # both filters of a pair have pixels
    frequency = np.hypot(np.fft.fftfreq(100)[:, None], np.fft.fftfreq(100)[None])
    middle = (frequency > 0.03) & (frequency < 0.4)
    power = (np.abs(np.fft.fft2(images - images.mean(axis=(1, 2), keepdims=True))) ** 2).mean(axis=0)
    slope = np.polyfit(np.log(frequency[middle]), np.log(power[middle]), 1)[0]
    assert -3 < slope < -1.5  # photographs: about -2
