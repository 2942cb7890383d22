"""Laws that every data set of the table obeys, on real files where they are and on small files of the same format."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from polyformer.datasets import DATASETS, Dataset, load_dataset
from polyformer.datasets.public_files import PublicDataset
from polyformer.errors import DataNotFound, FileCorrupt, UnknownName
from polyformer.metrics import METRICS
from polyformer.tasks import Task
from tests import recipes
from tests.datasets.small_files import write_small

ALL_DATASETS = recipes.DATASET.added_to(DATASETS)
"""The table, and the data set that the page on extending tells a newcomer to add to it."""

PUBLISHED = [name for name in DATASETS if isinstance(DATASETS[name], PublicDataset)]
NUM_SPLITS = {
    "none": (0,),
    "interior": (0,),
    "fit": (0,),
    "public": (1,),
    "balanced": (10,),
    "uniform": (10,),
    "fixed": (1, 5, 10),
}
REAL_ROOT = os.environ.get("POLYFORMER_DATA") or None


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, an empty cache, no data root of the machine."""
    monkeypatch.setenv("POLYFORMER_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("POLYFORMER_DATA", raising=False)
    recipes.DATASET.register(DATASETS, monkeypatch)


def published(name: str) -> PublicDataset:
    dataset = DATASETS[name]
    assert isinstance(dataset, PublicDataset)
    return dataset


def check_task(task: Task, dataset: Dataset) -> None:
    assert task.name == dataset.name
    assert not task.splits or task.metric == dataset.metric
    assert task.labels.dtype == np.int64
    graph = task.graph
    assert abs(graph.adjacency() - graph.adjacency().T).nnz == 0
    assert graph.adjacency().diagonal().sum() == 0
    for split in task.splits:
        split.check(task.labels)
        assert all(np.all(np.diff(part) > 0) for part in (split.train, split.val, split.test))


@pytest.mark.parametrize("name", ALL_DATASETS)
def test_is_described(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.name == name
    assert dataset.citation
    assert type(dataset).__doc__
    assert dataset.counts is not None
    assert dataset.counts.nodes > 0
    assert dataset.metric in METRICS if dataset.protocols != ("none",) else dataset.metric == ""
    assert len(set(dataset.protocols)) == len(dataset.protocols) > 0


@pytest.mark.parametrize("name", ALL_DATASETS)
def test_real_files_have_the_published_counts(name: str) -> None:
    if REAL_ROOT is None:
        pytest.skip("POLYFORMER_DATA is not set")
    dataset, root = DATASETS[name], Path(REAL_ROOT)
    try:
        task = load_dataset(name, root)
    except DataNotFound:
        pytest.skip(f"'{name}' is not in {root}")
    check_task(task, dataset)
    counts, graph = dataset.counts, task.graph
    assert counts is not None
    assert (graph.num_nodes, graph.num_edges, graph.num_features, task.num_classes) == (
        counts.nodes,
        counts.edges,
        counts.features,
        counts.classes,
    )
    assert task.protocol == dataset.protocols[0]
    if graph.num_features > 1000:
        assert sp.issparse(graph.features)


@pytest.mark.parametrize("name", PUBLISHED)
def test_small_files_of_the_same_format(name: str, tmp_path: Path) -> None:
    dataset, root = published(name), tmp_path / "root"
    written = write_small(dataset, root / dataset.folder)
    before = sorted(root.rglob("*"))
    dataset = dataclasses.replace(dataset, counts=written.counts)
    for protocol in dataset.protocols:
        task = dataset.load(root, protocol)
        check_task(task, dataset)
        assert task.protocol == protocol
        assert len(task.splits) in NUM_SPLITS[protocol]
        np.testing.assert_array_equal(task.labels, written.labels)
        rows, columns = task.graph.adjacency().nonzero()
        assert {(u, v) for u, v in zip(rows.tolist(), columns.tolist(), strict=True) if u < v} == written.edges
        if written.features is None:
            assert task.graph.features is None
        else:
            features = task.graph.features
            dense = features.toarray() if sp.issparse(features) else features
            np.testing.assert_allclose(dense, written.features, rtol=1e-5, atol=1e-6)
    assert sorted(root.rglob("*")) == before, "the data root was written to"
    assert Path(dataset.status(root)).is_dir()


@pytest.mark.parametrize("name", PUBLISHED)
def test_other_counts_than_published_are_refused(name: str, tmp_path: Path) -> None:
    dataset = published(name)
    write_small(dataset, tmp_path / "root" / dataset.folder)
    with pytest.raises(FileCorrupt, match=f"'{name}' in .* are not the published ones: 60 nodes instead of .*again"):
        dataset.load(tmp_path / "root", dataset.protocols[0])


@pytest.mark.parametrize("name", PUBLISHED)
def test_absent_files_are_named(name: str, tmp_path: Path) -> None:
    dataset = published(name)
    with pytest.raises(DataNotFound) as error:
        load_dataset(name, tmp_path)
    for file in dataset.files:
        assert file.path in str(error.value)
    assert str(tmp_path / "cache" / "polyformer" / "datasets" / dataset.folder) in str(error.value)
    assert "\n" not in str(error.value)
    assert "on first use from http" in dataset.status(None) or dataset.files[0].path in dataset.status(None)


@pytest.mark.parametrize("name", ALL_DATASETS)
def test_unknown_protocols_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=f"'{name}' has no split protocol 'balancd'"):
        load_dataset(name, tmp_path, "balancd")
