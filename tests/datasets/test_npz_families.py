"""Sparse npz (CS, Physics, Amazon, WordNet) and heterophilous npz, against PyTorch Geometric."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from polyformer.datasets import load_dataset
from polyformer.errors import FileCorrupt

pytestmark = pytest.mark.usefixtures("cache")


def edges_of(task: Any) -> np.ndarray:
    rows, columns = task.graph.adjacency().nonzero()
    return np.stack([rows, columns])


def in_row_order(edge_index: np.ndarray) -> np.ndarray:
    return edge_index[:, np.lexsort((edge_index[1], edge_index[0]))]


@pytest.mark.parametrize(
    ("name", "file", "classes"),
    [("cs", "CS/raw/ms_academic_cs.npz", 15), ("physics", "Physics/raw/ms_academic_phy.npz", 5)],
)
def test_coauthors_equal_pytorch_geometric(real_root: Path, name: str, file: str, classes: int) -> None:
    from torch_geometric.io import read_npz  # what its Coauthor class calls; the class would write 500 MB

    theirs: Any = read_npz(str(real_root / file), to_undirected=True)
    task = load_dataset(name, real_root)
    np.testing.assert_array_equal(edges_of(task), in_row_order(theirs.edge_index.numpy()))
    np.testing.assert_array_equal(task.labels, theirs.y.numpy())
    features = task.graph.features
    assert sp.issparse(features)
    dense = theirs.x.numpy()
    dense /= np.maximum(dense.sum(axis=1, keepdims=True), 1)
    rows, columns = features.nonzero()
    assert features.nnz == np.count_nonzero(dense)
    np.testing.assert_allclose(features.data, dense[rows, columns], rtol=1e-6)
    assert task.class_names is not None
    assert len(task.class_names) == classes


@pytest.mark.parametrize("name", ["minesweeper", "tolokers"])
def test_heterophilous_equals_pytorch_geometric(real_root: Path, tmp_path: Path, name: str) -> None:
    from torch_geometric.datasets import HeterophilousGraphDataset

    shutil.copytree(real_root / name, tmp_path / "root" / name, copy_function=shutil.copyfile)
    theirs: Any = HeterophilousGraphDataset(str(tmp_path / "root"), name)[0]
    task = load_dataset(name, real_root)
    np.testing.assert_array_equal(edges_of(task), in_row_order(theirs.edge_index.numpy()))
    np.testing.assert_array_equal(task.graph.features, theirs.x.numpy())
    np.testing.assert_array_equal(task.labels, theirs.y.numpy())
    assert len(task.splits) == 10
    for i, split in enumerate(task.splits):
        for part, masks in (("train", theirs.train_mask), ("val", theirs.val_mask), ("test", theirs.test_mask)):
            np.testing.assert_array_equal(getattr(split, part), np.flatnonzero(masks[:, i].numpy()))


def test_a_damaged_file_is_one_sentence(real_root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "root" / "minesweeper" / "raw"
    folder.mkdir(parents=True)
    content = (real_root / "minesweeper" / "raw" / "minesweeper.npz").read_bytes()
    (folder / "minesweeper.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(FileCorrupt, match=r"minesweeper\.npz' cannot be read .* Get the file again"):
        load_dataset("minesweeper", tmp_path / "root")
    np.savez(folder / "minesweeper.npz", node_features=np.eye(3))
    with pytest.raises(FileCorrupt, match="node_labels"):
        load_dataset("minesweeper", tmp_path / "root")
    objects = np.array([{}, None], dtype=object)
    np.savez(folder / "minesweeper.npz", node_features=objects)
    with pytest.raises(FileCorrupt, match=r"cannot be read \(.*pickle"):
        load_dataset("minesweeper", tmp_path / "root")
