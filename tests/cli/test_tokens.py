"""`polyformer tokens` and what reads its directories, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from polyformer.datasets import load_dataset
from polyformer.graph import Graph
from polyformer.tokens import compute_tokens, open_tokens
from tests.cli.test_cli import BOARD, FAST, run


def test_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "nodes.npy", np.array([5, 3]))
    options = ["--basis", "bernstein", "--order", 4, "--engine", "memory", "--memory", "1GiB"]
    assert run("tokens", BOARD, *options, "--nodes", tmp_path / "nodes.npy", "--out", tmp_path / "t") == 0
    assert "2 nodes × 5 tokens × 7 features" in capsys.readouterr().out
    tokens = open_tokens(tmp_path / "t")
    expected = compute_tokens(load_dataset(BOARD).graph, "bernstein", 4, nodes=[5, 3])
    assert np.allclose(tokens[:], expected, atol=1e-6)
    assert tokens.nodes.tolist() == [5, 3]


@pytest.mark.parametrize("engine", ["memory", "disk"])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nodes.npy", np.zeros(300, bool), "must select at least one node"),
        ("nodes.npy", np.array(5), "must be a list of node ids or a mask of length 300. Got int64 of shape ()"),
        ("nodes.npy", b"", "must hold one node number a line, or be a .npy file of them"),
        ("nodes.txt", b"", "must select at least one node"),
        ("labelled", b"", "must select at least one node. Got labelled"),
    ],
)
def test_nodes_that_cannot_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], engine: str, name: str, content: Any, message: str
) -> None:
    Graph(np.stack([np.arange(299), np.arange(1, 300)]), np.ones((300, 2))).save(tmp_path / "graph")
    nodes = tmp_path / name
    if isinstance(content, bytes):
        nodes.write_bytes(content)
    else:
        np.save(nodes, content)
    chosen = name if name == "labelled" else nodes
    out = tmp_path / "t"
    assert run("tokens", tmp_path / "graph", "--nodes", chosen, "--engine", engine, "--order", 2, "--out", out) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_mask_of_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "mask.npy", np.arange(300) < 4)
    options = ["--order", 2, "--nodes", tmp_path / "mask.npy", "--out", tmp_path / "t", "--json"]
    assert run("tokens", BOARD, *options) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["rows"], result["bytes"]) == (4, 4 * 3 * 7 * 4)


def test_train_and_predict_from_a_token_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [option for option in FAST if "order" not in option]
    assert run("tokens", BOARD, "--basis", "bernstein", "--order", 2, "--out", tmp_path / "t") == 0
    bound = ["--tokens", tmp_path / "t", "--memory", "20kB"]
    assert run("train", BOARD, "--out", tmp_path / "run", *bound, *options, "--set", "token_route=streamed") == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["tokens"], config["memory"]) == (str(tmp_path / "t"), 20_000)
    assert (config["settings"]["basis"], config["settings"]["order"]) == ("bernstein", 2)
    assert run("train", "--resume", "--out", tmp_path / "run", *bound) == 0
    assert run("train", "--resume", "--out", tmp_path / "run", "--memory", "30kB") == 0
    assert run("train", "--resume", "--out", tmp_path / "run", "--order", "3") == 2
    assert "was started with order=2. Got 3." in capsys.readouterr().err
    assert run("predict", tmp_path / "run", "--out", tmp_path / "a.parquet") == 0
    np.save(tmp_path / "nodes.npy", np.array([7, 250, 3]))
    some = ["--nodes", tmp_path / "nodes.npy", *bound]
    assert run("predict", tmp_path / "run", *some, "--out", tmp_path / "b.parquet", "--json") == 0
    assert json.loads(capsys.readouterr().out.split("written to")[-1].partition("\n")[2])["nodes"] == 3
    everything, part = (pq.read_table(tmp_path / f"{name}.parquet").to_pydict() for name in "ab")
    assert part["node"] == [7, 250, 3]
    assert part["prediction"] == [everything["prediction"][node] for node in part["node"]]
    for node, mine in zip(part["node"], part["probability_mine"], strict=True):
        assert mine == pytest.approx(everything["probability_mine"][node], abs=1e-5)
    assert run("predict", tmp_path / "run", "--nodes", "labelled", "--out", tmp_path / "c.parquet") == 0
    assert pq.read_table(tmp_path / "c.parquet").num_rows == 300
    np.save(tmp_path / "none.npy", np.empty(0, np.int64))
    for nodes, message in ((tmp_path / "none.npy", "must select at least one node"), ("some", "must be all, labelled")):
        assert run("predict", tmp_path / "run", "--nodes", nodes, "--out", tmp_path / "d.parquet") == 2
        assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
