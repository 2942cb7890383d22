"""Buffers in half precision: the error that is stated, what they refuse, and that they never mix with other blocks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.propagation.disk import DiskEngine
from polyformer.propagation.kernel import SparseBlock, multiplies_halves
from polyformer.tokens import open_tokens, write_tokens
from tests.cli.test_cli import run

pytestmark = pytest.mark.skipif(not multiplies_halves(), reason="the native kernel does not multiply halves here")


def hub_graph(nodes: int, columns: int, weighted: bool = False) -> Graph:
    """Random edges, and a few nodes with very many neighbours."""
    random = np.random.default_rng(0)
    ends = random.integers(0, nodes, (2, 5 * nodes))
    ends[0, : 2 * nodes] %= 7
    weights = random.random(5 * nodes) if weighted else None
    return Graph(ends, random.standard_normal((nodes, columns)), nodes, weights)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_exact_until_they_are_rounded(width: int, weighted: bool) -> None:
    random = np.random.default_rng(1)
    matrix = sp.random(50, 50, 0.3, "csr", np.float32, random)
    if not weighted:
        matrix.data[:] = 1
    block = SparseBlock(matrix.indptr.astype(np.int64), matrix.indices, matrix.data if weighted else None, (50, 50))
    x, previous = (random.standard_normal((50, width)).astype(np.float16) for _ in range(2))
    scale = random.random(50)
    out = block.product(
        x, np.empty_like(x), row_scale=scale, loop=0.5, alpha=-2.0, previous=previous, beta=-1.0
    ).astype(np.float64)
    wide = x.astype(np.float64)
    expected = -2.0 * scale[:, None] * (matrix.astype(np.float64) @ wide + 0.5 * wide) - previous.astype(np.float64)
    assert np.abs(out - expected).max() <= 2.0**-11 * np.abs(expected).max() * 1.01


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize(("basis", "weighted"), [("chebyshev", False), ("chebyshev", True), ("monomial", False)])
def test_the_error_is_the_one_that_is_stated(basis: str, weighted: bool, size: float, tmp_path: Path) -> None:
    graph, order = hub_graph(3000, 40, weighted), 8
    assert graph.features is not None
    graph = graph.with_features(graph.features * np.float32(size))
    for name in ("float32", "float16"):
        write_tokens(graph, tmp_path / name, "chebyshev", order, engine=DiskEngine(8 << 20, name))
    exact, rounded = (open_tokens(tmp_path / name, basis=basis)[:].double() for name in ("float32", "float16"))
    for k in range(order + 1):
        error = float((exact[:, k] - rounded[:, k]).norm() / exact[:, k].norm())
        # A monomial token is a mean of Chebyshev tokens, smaller than they are: its share of the error is larger.
        assert error <= 3e-4 * (k + 1) * (1 if basis == "chebyshev" else 4)
        assert k == 0 or basis != "chebyshev" or error > 1e-6  # it is another computation


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    graph = hub_graph(200, 8)
    assert graph.features is not None
    engine = DiskEngine(64 << 20, "float16")
    with pytest.raises(InvalidParameter, match="'buffers' must be float32 for these features"):
        write_tokens(graph.with_features(graph.features * 1e5), tmp_path / "large", order=2, engine=engine)
    with pytest.raises(InvalidParameter, match="'buffers' must be float32 for the optimal basis"):
        write_tokens(graph, tmp_path / "optimal", "optimal", 2, engine=engine)
    with pytest.raises(InvalidParameter, match=r"'buffers' must be float32 or float16\. Got 'bfloat16'"):
        DiskEngine(None, "bfloat16")


def test_a_token_directory_names_the_buffers(tmp_path: Path) -> None:
    """Blocks of an unfinished job are only taken up where the whole description is the same."""
    for buffers, recorded in [("float16", "float16"), ("float32", None)]:
        write_tokens(hub_graph(200, 8), tmp_path / buffers, order=2, engine=DiskEngine(64 << 20, buffers))
        assert json.loads((tmp_path / buffers / "manifest.json").read_text()).get("buffers") == recorded


def test_the_verb_takes_them_with_the_disk_engine_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub_graph(200, 8).save(tmp_path / "graph")
    half = ["--buffers", "float16", "--order", "2"]
    assert run("tokens", str(tmp_path / "graph"), "--out", str(tmp_path / "no"), *half) == 2
    assert "'--buffers' must be float32 without --engine disk" in capsys.readouterr().err
    assert run("tokens", str(tmp_path / "graph"), "--out", str(tmp_path / "yes"), "--engine", "disk", *half) == 0
    assert open_tokens(tmp_path / "yes").shape == (200, 3, 8)
