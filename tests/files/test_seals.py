"""Hashes of all files of a directory, by chunks: whatever byte changes is noticed, and few chunks are hashed anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from polyformer.errors import FileCorrupt
from polyformer.files import check_sealed, reseal_file, seal_file, seal_files, seals
from polyformer.graph import Graph
from polyformer.splits import Split
from polyformer.tasks import Task
from tests.edits import rewrite_json

CHUNK = seals.CHUNK_BYTES


def task() -> Task:
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 40, (2, 90)), random.normal(size=(40, 3)), 40, random.random(90))
    splits = [Split(np.arange(10), np.arange(10, 20), np.arange(20, 30))]
    return Task("small", graph, np.arange(40) % 3, splits, class_names=("a", "b", "c"), ids=np.arange(40) + 100)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed") / "graph"
    task().save(folder)
    return folder


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95, 1.0])
@pytest.mark.parametrize(
    "name",
    [
        "indptr.npy",
        "indices.npy",
        "weights.npy",
        "features.npy",
        "labels.npy",
        "ids.npy",
        "splits.npz",
        "manifest.json",
    ],
)
def test_every_changed_byte_of_a_small_directory_is_noticed(
    saved: Path, tmp_path: Path, name: str, share: float
) -> None:
    shutil.copytree(saved, tmp_path / "graph")
    path = tmp_path / "graph" / name
    content = bytearray(path.read_bytes())
    content[int(share * (len(content) - 2))] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileCorrupt):
        Task.load(tmp_path / "graph")


def test_rolled_labels_and_reversed_ids_are_noticed(saved: Path, tmp_path: Path) -> None:
    for name, change in (("labels.npy", lambda a: np.roll(a, 1)), ("ids.npy", lambda a: a[::-1])):
        shutil.copytree(saved, tmp_path / name)
        np.save(tmp_path / name / name, change(np.load(saved / name)))
        with pytest.raises(FileCorrupt, match=f"{name[:-4]}.npy' is not the file that was written there"):
            Task.load(tmp_path / name)


@pytest.mark.parametrize("size", [0, 1, CHUNK, 3 * CHUNK - 1, 40 * CHUNK + 5])
def test_seals_fit_their_file_and_no_other(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(np.random.default_rng(size).bytes(size))
    sealed = seal_files(tmp_path, ["x", "absent"])
    assert list(sealed) == ["x"]
    check_sealed(tmp_path, sealed, whole=True)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(FileCorrupt, match="bytes instead of"):
        check_sealed(tmp_path, sealed)


def test_large_files_are_sampled_on_opening_and_read_whole_when_verified(tmp_path: Path) -> None:
    path, size = tmp_path / "x", seals.WHOLE_BYTES + 5 * CHUNK
    with path.open("wb") as file:
        file.truncate(size)
    sealed = seal_files(tmp_path, ["x"])
    with path.open("r+b") as file:
        file.seek(CHUNK + 7)
        file.write(b"!")
    check_sealed(tmp_path, sealed)
    with pytest.raises(FileCorrupt, match="between byte 1,048,576 and 2,097,152"):
        check_sealed(tmp_path, sealed, whole=True)


@pytest.mark.parametrize("size", [5 * CHUNK, 5 * CHUNK + 9, 7 * CHUNK + 1, 2 * CHUNK, 3])
def test_only_changed_chunks_are_read_again(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(np.random.default_rng(0).bytes(5 * CHUNK + 9))
    before = seal_file(path)
    content = np.random.default_rng(0).bytes(5 * CHUNK + 9)[:size].ljust(size, b"z")
    content = content[:1] + b"?" + content[2:]
    path.write_bytes(content)
    hashed: list[int] = []
    original = seals._hash_chunk
    monkeypatch.setattr(seals, "_hash_chunk", lambda handle, chunk: hashed.append(chunk) or original(handle, chunk))
    after = reseal_file(path, before, [(1, 2)])
    assert len(hashed) <= 1 + max(1, size // CHUNK - 4)
    assert after == seal_file(path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "a/b", ""])
def test_names_in_a_manifest_stay_in_the_folder(saved: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(saved, tmp_path / "graph")
    for key, value in (("files", {name: {"bytes": 1, "chunks": "x" * 16}}), ("samples", {name: "x"})):
        rewrite_json(tmp_path / "graph" / "manifest.json", **{"files": {}, key: value})
        with pytest.raises(FileCorrupt, match="which is no file of its folder"):
            Graph.load(tmp_path / "graph")
