from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from polyformer.datasets import load_dataset
from polyformer.datasets.planetoid import CITESEER
from polyformer.errors import FileCorrupt

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def copied_root(real_root: Path, tmp_path: Path) -> Path:
    """Copy Citeseer and Pubmed to a writable folder."""
    for name in ("CiteSeer", "PubMed"):
        shutil.copytree(real_root / name, tmp_path / "root" / name, copy_function=shutil.copyfile)
    return tmp_path / "root"


@pytest.mark.parametrize("name", ["CiteSeer", "PubMed"])
def test_equals_pytorch_geometric(copied_root: Path, name: str) -> None:
    from torch_geometric.datasets import Planetoid
    from torch_geometric.transforms import NormalizeFeatures

    theirs: Any = Planetoid(str(copied_root), name, transform=NormalizeFeatures())[0]
    task = load_dataset(name.lower(), copied_root, "public")
    rows, columns = task.graph.adjacency().nonzero()
    expected = theirs.edge_index.numpy()
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == set(map(tuple, expected.T.tolist()))
    assert sp.issparse(task.graph.features)
    np.testing.assert_allclose(task.graph.features.toarray(), theirs.x.numpy(), rtol=1e-6, atol=0)
    np.testing.assert_array_equal(task.labels, theirs.y.numpy())
    for part, mask in (("train", theirs.train_mask), ("val", theirs.val_mask), ("test", theirs.test_mask)):
        np.testing.assert_array_equal(getattr(task.splits[0], part), np.flatnonzero(mask.numpy()))


def test_public_sizes_and_no_unlabelled_node(real_root: Path) -> None:
    task = load_dataset("citeseer", real_root, "public")
    split = task.splits[0]
    assert (len(split.train), len(split.val), len(split.test)) == (120, 500, 1000)
    assert task.labels.min() == 0


def test_a_bomb_in_place_of_a_file_is_refused(copied_root: Path) -> None:
    path = copied_root / "CiteSeer" / "raw" / "ind.citeseer.graph"
    path.write_bytes(b"cos\nsystem\n(S'echo bomb'\ntR.")
    with pytest.raises(FileCorrupt, match=r"ind\.citeseer\.graph' asks to load 'os\.system'"):
        load_dataset("citeseer", copied_root)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("graph", pickle.dumps([1, 2])),
        ("allx", pickle.dumps(np.arange(3))),
        ("ally", pickle.dumps({})),
        ("test.index", b"one two"),
        ("test.index", b""),
    ],
)
def test_files_of_another_kind_are_refused(copied_root: Path, part: str, content: bytes) -> None:
    (copied_root / "CiteSeer" / "raw" / f"ind.citeseer.{part}").write_bytes(content)
    with pytest.raises(FileCorrupt, match=f"ind.citeseer.{part}' cannot be read"):
        CITESEER.load(copied_root, "public")
