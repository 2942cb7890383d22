from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter, OutOfResources, OutputExists
from polyformer.graph import Graph
from polyformer.stores import blocks as module
from polyformer.tokens import compute_tokens, open_tokens, write_tokens

GRAPH = Graph(np.random.default_rng(0).integers(0, 30, (2, 60)), np.random.default_rng(1).standard_normal((30, 5)))


def test_rows_slices_and_single_rows(tmp_path) -> None:
    write_tokens(GRAPH, tmp_path / "t", "bernstein", 4, self_loops=True)
    tokens, exact = open_tokens(tmp_path / "t"), compute_tokens(GRAPH, "bernstein", 4, self_loops=True)
    assert len(tokens) == 30
    assert tokens.self_loops
    for rows in (slice(3, 9), [4, 1], np.array([2]), torch.tensor([5, 5]), -1, 7):
        assert torch.allclose(tokens[rows], exact[rows], atol=1e-6)


def test_optimal_recurrence_is_kept(tmp_path) -> None:
    write_tokens(GRAPH, tmp_path / "t", "optimal", 4)
    stored = open_tokens(tmp_path / "t", order=2)
    assert stored.recurrence is not None
    assert stored.recurrence.gamma.shape == (2, 5)
    assert torch.equal(stored[:], compute_tokens(GRAPH, "optimal", 2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"basis": "optimal"}, "made from optimal tokens, but .* stores chebyshev tokens"),
        ({"order": 5}, "'order' must be at most 4"),
        ({"order": -1}, "'order' must be a whole number"),
    ],
)
def test_views_that_cannot_be(tmp_path, arguments: dict, message: str) -> None:
    write_tokens(GRAPH, tmp_path / "t", "chebyshev", 4)
    with pytest.raises(InvalidParameter, match=message):
        open_tokens(tmp_path / "t", **arguments)
    write_tokens(GRAPH, tmp_path / "o", "optimal", 4)
    with pytest.raises(InvalidParameter, match=r"made from chebyshev tokens, but .* stores optimal tokens"):
        open_tokens(tmp_path / "o", basis="monomial")


@pytest.mark.parametrize("damage", ["truncated", "missing", "version", "other shape", "swapped", "nodes"])
def test_damaged_directory(tmp_path, damage: str) -> None:
    write_tokens(GRAPH, tmp_path / "t", "chebyshev", 4, nodes=range(20))
    path = tmp_path / "t" / "tokens.npy"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "missing":
        path.unlink()
    elif damage == "version":
        manifest = json.loads((tmp_path / "t" / "manifest.json").read_text())
        (tmp_path / "t" / "manifest.json").write_text(json.dumps({**manifest, "format": 7}))
    elif damage == "other shape":
        np.save(path, np.zeros((3, 2, 1), np.float32))
    else:
        write_tokens(GRAPH, tmp_path / "other", "chebyshev", 4, nodes=range(10, 30))
        name = "tokens.npy" if damage == "swapped" else "nodes.npy"
        (tmp_path / "other" / name).replace(tmp_path / "t" / name)
    with pytest.raises(FileCorrupt):
        open_tokens(tmp_path / "t")
    with pytest.raises(DataNotFound, match="no token directory"):
        open_tokens(tmp_path / "nowhere")


@pytest.mark.parametrize("key", ["view", "order", "subset", "operator", "dtype"])
def test_a_manifest_without_a_key(tmp_path: Path, key: str) -> None:
    write_tokens(GRAPH, tmp_path / "t", "chebyshev", 2)
    manifest = json.loads((tmp_path / "t" / "manifest.json").read_text())
    del manifest[key]
    (tmp_path / "t" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FileCorrupt, match=f"is damaged: it has no '{key}'"):
        open_tokens(tmp_path / "t")


def test_full_disk_leaves_what_is_done(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full)
    with pytest.raises(OutOfResources, match="No space left"):
        write_tokens(GRAPH, tmp_path / "t", "chebyshev", 4)
    assert not (tmp_path / "t").exists()
    monkeypatch.undo()
    write_tokens(GRAPH, tmp_path / "t", "chebyshev", 4)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
    with pytest.raises(OutputExists):
        write_tokens(GRAPH, tmp_path / "t", "chebyshev", 4)
