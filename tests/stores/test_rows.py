from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from polyformer.bases import Bernstein, Chebyshev
from polyformer.errors import FileCorrupt, InvalidParameter
from polyformer.graph import Graph
from polyformer.stores import rows as module
from polyformer.stores.directory import StoredTokens
from polyformer.stores.layers import TokenLayers
from polyformer.stores.rows import RowIndex, TokenRows
from polyformer.tokens import compute_tokens, open_tokens, write_tokens


class Stored(SimpleNamespace):
    """The parts of an open token directory that the tests read, with rows of any type."""

    def __len__(self) -> int:
        return len(self.array)


def stored(folder: Path, dtype: str = "float32", order: int = 3, basis: object = None) -> Stored:
    array = np.random.default_rng(0).standard_normal((50, 4, 6)).astype(dtype)
    path = folder / "tokens.npy"
    np.save(path, array)
    layers = TokenLayers(np.load(path, mmap_mode="r"), [], len(array))
    about = {"base_path": path, "base_file": path.open("rb", buffering=0), "layers": layers}
    return Stored(directory=folder, order=order, basis=basis or Chebyshev(), array=array, **about)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("order", [3, 1])
@pytest.mark.parametrize("call_bytes", [1 << 21, 500])
@pytest.mark.parametrize("gap_bytes", [1 << 15, 0, 200])
def test_any_rows_in_any_order(
    tmp_path: Path, dtype: str, order: int, call_bytes: int, gap_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CALL_BYTES", call_bytes)
    monkeypatch.setattr(module, "_GAP_BYTES", gap_bytes)
    tokens = stored(tmp_path, dtype, order)
    reader = TokenRows(cast(StoredTokens, tokens))
    for rows in ([3], [0, 1, 2, 3], [49, 0, 7, 8, 30], [5, 5, 4], list(range(0, 50, 3)), list(range(50)), []):
        expected = tokens.array[np.array(rows, np.int64), : order + 1].astype(np.float32)
        result = reader.fetch(np.array(rows, np.int64))
        assert result.dtype == torch.float32
        assert np.array_equal(result.numpy(), expected)


def test_rows_come_in_the_basis(tmp_path: Path) -> None:
    tokens = stored(tmp_path, basis=Bernstein(), order=2)
    mixed = np.einsum("jk,nkd->njd", Bernstein().mixing(2), tokens.array[:, :3].astype(np.float64))
    assert np.allclose(TokenRows(cast(StoredTokens, tokens)).fetch(np.arange(50)).numpy(), mixed, atol=1e-6)


def test_a_file_that_is_cut_while_it_is_open(tmp_path: Path) -> None:
    tokens = stored(tmp_path)
    reader = TokenRows(cast(StoredTokens, tokens))
    with (tmp_path / "tokens.npy").open("r+b") as file:
        file.truncate(2000)
    assert len(reader.fetch(np.arange(10))) == 10
    with pytest.raises(FileCorrupt, match=r"ends before row 50\. Make the tokens again"):
        reader.fetch(np.arange(50))


@pytest.mark.parametrize("nodes", [[2, 3, 9], [9, 2, 3], None])
def test_index(nodes: list[int] | None) -> None:
    index = RowIndex(None if nodes is None else np.array(nodes), 3)
    wanted = np.array([0, 2, 1]) if nodes is None else np.array([3, 2, 9, 9])
    expected = wanted if nodes is None else [nodes.index(node) for node in wanted]
    assert index(wanted).tolist() == list(expected)
    for absent in ([4], [2, 11, 5]):
        with pytest.raises(InvalidParameter, match="no tokens of node"):
            index(np.array(absent))
    with pytest.raises(InvalidParameter, match=r"no tokens of node 1 in 'somewhere'\. Make them"):
        RowIndex(np.empty(0, np.int64), 0, "'somewhere'")(np.array([1]))


def test_rows_of_a_float16_directory_are_float32(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 30, (2, 60)), random.standard_normal((30, 4), np.float32), num_nodes=30)
    write_tokens(graph, tmp_path / "half", order=3, dtype="float16")
    rows = np.array([5, 0, 7, 6])
    read = TokenRows(open_tokens(tmp_path / "half", "bernstein")).fetch(rows)
    assert read.dtype == torch.float32
    torch.testing.assert_close(read, compute_tokens(graph, "bernstein", 3, nodes=rows), atol=2e-3, rtol=2e-3)
