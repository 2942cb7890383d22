"""A small file that claims much is refused before anything of that size is allocated or written."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import polyformer as pf
from polyformer.datasets import load_dataset, load_source
from polyformer.errors import FileCorrupt, InvalidData, InvalidParameter, OutOfResources, PolyformerError
from polyformer.files import read_npy, read_npz
from polyformer.importing import import_graph, open_source
from polyformer.limits import MOST_NODES
from polyformer.registry import parse_spec

resource = pytest.importorskip("resource", reason="no limits of resources")


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """At most 2 GiB more than now: what is allocated in spite of the checks is an error here."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def npz_matrix(path: Path, nodes: int) -> None:
    size = {"shape": np.array([nodes, nodes]), "format": np.array(b"coo")}
    np.savez(path, row=np.array([0]), col=np.array([1]), data=np.ones(1), **size)


def ogb_folder(path: Path, nodes: int) -> None:
    path.mkdir()
    for name, text in (("edge", "0,1\n1,2\n"), ("num-node-list", f"{nodes}\n"), ("num-edge-list", "2\n")):
        with gzip.open(path / f"{name}.csv.gz", "wt") as file:
            file.write(text)


def torch_file(path: Path, nodes: int) -> None:
    torch.save({"edge_index": torch.tensor([[0], [1]]), "num_nodes": nodes}, path)


def market(path: Path, nodes: int) -> None:
    path.write_text(f"%%MatrixMarket matrix coordinate pattern general\n{nodes} {nodes} 1\n1 2\n")


CLAIMS = {"a.npz": npz_matrix, "ogb": ogb_folder, "a.pt": torch_file, "a.mtx": market}


@pytest.mark.parametrize("nodes", [10**12, MOST_NODES + 1, 2 * 10**9])
@pytest.mark.parametrize("name", CLAIMS)
def test_a_file_of_a_kilobyte_cannot_claim_a_billion_nodes(tmp_path: Path, name: str, nodes: int) -> None:
    CLAIMS[name](tmp_path / name, nodes)
    for read in (open_source, lambda path: import_graph(path, tmp_path / "out" / "graph")):
        with pytest.raises((InvalidData, FileCorrupt)):
            read(tmp_path / name)
    left = list((tmp_path / "out").rglob("*")) if (tmp_path / "out").exists() else []
    assert left == []


@pytest.mark.parametrize("name", CLAIMS)
def test_nodes_without_edges_are_still_believed(tmp_path: Path, name: str) -> None:
    CLAIMS[name](tmp_path / name, 5000)
    assert open_source(tmp_path / name).graph.num_nodes == 5000


def npy_header(shape: str, descr: str = "'<f8'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize(
    "shape", ["(1000000000000,)", "(99999999999999999999999999,)", "(-1,)", "(3.5,)", "((((", "(1,)*9", "True", "(2, 2"]
)
def test_headers_that_claim_what_is_not_there(tmp_path: Path, shape: str) -> None:
    (tmp_path / "a.npy").write_bytes(npy_header(shape) + bytes(64))
    with pytest.raises(FileCorrupt, match=r"a\.npy' cannot be read"):
        read_npy(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy_header(shape) + bytes(64))
    with pytest.raises(FileCorrupt, match=r"a\.npz' cannot be read"):
        read_npz(tmp_path / "a.npz", ["x"])


@pytest.mark.parametrize("descr", ["'O'", "[('a', '<f8')]", "'V8'", "'<M8[s]'", "'<U0'", "'q8'"])
def test_arrays_of_anything_but_numbers_and_words(tmp_path: Path, descr: str) -> None:
    (tmp_path / "a.npy").write_bytes(npy_header("(2,)", descr) + bytes(64))
    with pytest.raises(FileCorrupt, match=r"a\.npy' cannot be read"):
        read_npy(tmp_path / "a.npy")


def test_packed_bytes_that_unfold_to_more_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("edges.npy", npy_header("(25000000,)") + bytes(200_000_000))
    monkeypatch.setattr("polyformer.machine.available_memory", lambda: 100_000_000)
    with pytest.raises(OutOfResources, match="of memory"):
        open_source(tmp_path / "a.npz")


def test_tensors_that_repeat_their_numbers(tmp_path: Path) -> None:
    held: dict[str, Any] = {"edge_index": torch.tensor([[0], [1]]), "x": torch.ones(1).expand(10**6, 10**5)}
    torch.save(held, tmp_path / "a.pt")
    with pytest.raises(InvalidData, match="repeats its numbers"):
        open_source(tmp_path / "a.pt")


def test_a_torch_file_with_packed_parts(tmp_path: Path) -> None:
    content = io.BytesIO()
    torch.save({"edge_index": torch.tensor([[0], [1]])}, content)
    with zipfile.ZipFile(content) as plain, zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(FileCorrupt, match="its parts are packed"):
        open_source(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("setting", "value"), [("num_layers", 1e10), ("hidden_channels", 1e12), ("hidden_channels", 1e6), ("heads", 1e15)]
)
def test_models_that_no_machine_can_build(setting: str, value: float) -> None:
    graph = pf.Graph([[0, 1], [1, 2]], np.eye(3))
    with pytest.raises((InvalidParameter, OutOfResources)):
        pf.PolyFormerClassifier(**{setting: value}).fit(graph, [0, 1, 0], train=[0, 1, 2])


@pytest.mark.parametrize(
    "spec",
    [
        "minefield:width=1000000,height=1000000",
        "minefield:width=40000,height=40000",
        "minefield:" + "x" * 100_000,
        "minefield:width=" + "9" * 5000,
    ],
)
def test_boards_that_no_machine_can_hold(spec: str) -> None:
    with pytest.raises(PolyformerError):
        pf.load_dataset(spec)


def test_a_matlab_file_that_claims_much(tmp_path: Path) -> None:
    import scipy.io

    scipy.io.savemat(tmp_path / "a.mat", {"A": sp.csc_matrix(np.eye(4)), "x": np.ones((4, 2))})
    assert open_source(tmp_path / "a.mat").graph.num_nodes == 4
    content = bytearray((tmp_path / "a.mat").read_bytes())
    place = content.rindex(b"\x04\x00\x00\x00\x02\x00\x00\x00")  # the dimensions of x
    content[place : place + 8] = (2**31 - 1).to_bytes(4, "little") * 2
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(FileCorrupt):
        open_source(tmp_path / "a.mat")


@pytest.mark.parametrize("name", ["x" * 5000, "x/" * 5000, "cora\0", "minefield:width=" + "9" * 5000])
@pytest.mark.parametrize("load", [load_dataset, load_source])
def test_names_that_no_system_takes_are_refused_in_a_sentence(load: Callable[[str], object], name: str) -> None:
    with pytest.raises(PolyformerError):
        load(name)


@pytest.mark.parametrize("value", [10**400, -(10**400), "1" + "0" * 400])
@pytest.mark.parametrize("name", ["lr", "epochs"])
def test_numbers_that_no_float_holds_are_refused_in_a_sentence(name: str, value: object) -> None:
    with pytest.raises(InvalidParameter, match=f"'{name}' must be"):
        pf.train("minefield:width=9,height=8", **{name: value})


@pytest.mark.parametrize("open_it", [pf.open_tokens, pf.Graph.load, pf.Run.open, pf.PolyFormerClassifier.load])
def test_folders_of_names_that_no_system_takes(open_it: Callable[[str], object]) -> None:
    for name in ("x" * 5000, "nul\0"):
        with pytest.raises(PolyformerError):
            open_it(name)


@pytest.mark.parametrize("letter", ["x", "9", "\ud800", "=", ","])
def test_a_long_option_is_refused_in_a_sentence(letter: str) -> None:
    with pytest.raises(PolyformerError) as refused:
        pf.train("minefield:width=9,height=8", basis=letter * 20_000)
    assert len(str(refused.value)) < 1000
    with pytest.raises(InvalidParameter, match="at most 10,000 characters"):
        parse_spec(f"x:a={letter * 20_000}")
