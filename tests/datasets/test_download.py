"""Files are fetched whole and verified, or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import zipfile
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyformer.datasets import DATASETS, Counts
from polyformer.datasets.download import download, extract
from polyformer.datasets.public_files import PublicDataset
from polyformer.datasets.sources import RemoteFile
from polyformer.errors import DataNotFound, DownloadFailed, FileCorrupt, OutOfResources
from tests.listener import Listener

CONTENT = b"0123456789" * 1000


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()] if folder.exists() else []


def small_dataset(server: Any, **changes: Any) -> PublicDataset:
    """The entry of minesweeper, pointed at a small file of the same format on ``server``."""
    random = np.random.default_rng(0)
    masks = np.eye(3, dtype=bool)[random.integers(0, 3, (10, 20))].transpose(2, 0, 1)
    masks[0, :, 0], masks[1:, :, 0] = True, False
    np.savez(
        server.folder / "small.npz",
        node_features=random.random((20, 7), np.float32),
        node_labels=np.arange(20) % 2,
        edges=np.stack([np.arange(19), np.arange(1, 20)], axis=1),
        **dict(zip(("train_masks", "val_masks", "test_masks"), masks, strict=True)),
    )
    sha256 = hashlib.sha256((server.folder / "small.npz").read_bytes()).hexdigest()
    dataset = DATASETS["minesweeper"]
    assert isinstance(dataset, PublicDataset)
    file = RemoteFile("raw/minesweeper.npz", f"{server.url}/small.npz", sha256)
    return replace(dataset, files=(file,), counts=Counts(nodes=20, edges=19, features=7, classes=2), **changes)


def test_a_data_set_is_downloaded_once_and_recorded(server: Any, cache: Path) -> None:
    dataset, seen = small_dataset(server), list[tuple[str, int, int | None]]()
    assert "downloaded on first use from http://127.0.0.1" in dataset.status(None)
    dataset.load(None, "fixed", reporter=Listener(on_stage=lambda *step: seen.append(step)))
    size = (server.folder / "small.npz").stat().st_size
    assert seen[-1] == ("minesweeper.npz", size, size)
    path = cache / "minesweeper" / "raw" / "minesweeper.npz"
    assert path.with_name("minesweeper.npz.sha256").read_text().strip() == dataset.files[0].sha256
    assert dataset.status(None) == str(path.parent)
    dataset.load(None, "fixed")
    assert len(server.requests) == 1
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(FileCorrupt, match=r"has changed since it was downloaded\. Delete it and"):
        dataset.load(None, "fixed")


def test_a_file_without_a_published_hash_is_held_to_that_of_its_first_download(server: Any, cache: Path) -> None:
    dataset = small_dataset(server)
    file = replace(dataset.files[0], sha256=None)
    unknown = replace(dataset, files=(file,))
    unknown.load(None, "fixed")
    path = cache / "minesweeper" / "raw" / "minesweeper.npz"
    assert path.with_name("minesweeper.npz.sha256").read_text().strip() == dataset.files[0].sha256
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(FileCorrupt, match="has changed since it was downloaded"):
        unknown.load(None, "fixed")
    for record in (b"\xff", b"x" * 5000, b""):
        path.with_name("minesweeper.npz.sha256").write_bytes(record)
        with pytest.raises(FileCorrupt):
            unknown.load(None, "fixed")


def test_files_in_a_root_are_used_without_network(server: Any, cache: Path, tmp_path: Path, monkeypatch: Any) -> None:
    dataset = small_dataset(server)
    for name in ("given", "environment"):
        folder = tmp_path / name / "minesweeper" / "raw"
        folder.mkdir(parents=True)
        shutil.copy(server.folder / "small.npz", folder / "minesweeper.npz")
    monkeypatch.setenv("POLYFORMER_DATA", str(tmp_path / "environment"))
    dataset.load(tmp_path / "given", "fixed")
    assert str(tmp_path / "given") in dataset.status(tmp_path / "given")
    assert str(tmp_path / "environment") in dataset.status(None)
    assert server.requests == []
    assert entries(cache) == []
    # A re-encoded copy is welcome: only downloads must have the public hash.
    with np.load(server.folder / "small.npz") as arrays:
        np.savez_compressed(tmp_path / "given" / "minesweeper" / "raw" / "minesweeper.npz", **arrays)
    dataset.load(tmp_path / "given", "fixed")


def test_a_wrong_root_and_offline_are_told(server: Any, cache: Path, tmp_path: Path, monkeypatch: Any) -> None:
    dataset = small_dataset(server)
    with pytest.raises(DataNotFound, match="There is no data root"):
        dataset.load(tmp_path / "nowhere", "fixed")
    monkeypatch.setenv("POLYFORMER_OFFLINE", "1")
    with pytest.raises(DataNotFound, match=r"not on this machine.*Put 'raw/minesweeper.npz' in"):
        dataset.load(None, "fixed")
    assert server.requests == []


@pytest.mark.parametrize(
    ("name", "sha256", "error", "message"),
    [
        ("cut", None, DownloadFailed, "ended after 5,000 of 10,000 bytes. Try again."),
        ("whole", "0" * 64, DownloadFailed, "is not the published file: its SHA-256 is"),
        ("missing", None, DownloadFailed, "the server says 404"),
    ],
)
def test_failed_downloads_leave_nothing(
    server: Any, tmp_path: Path, name: str, sha256: str | None, error: type[Exception], message: str
) -> None:
    for file in ("cut", "whole"):
        (server.folder / file).write_bytes(CONTENT)
    server.cut.add("cut")
    with pytest.raises(error, match=message):
        download(f"{server.url}/{name}", tmp_path / "target" / "file", sha256)
    assert entries(tmp_path / "target") == []


def test_no_connection(tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed, match=r"could not be downloaded .* Check the connection"):
        download("http://127.0.0.1:9/file", tmp_path / "file")


def test_no_space_is_known_before(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (server.folder / "whole").write_bytes(CONTENT)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10_000, 9_999, 1))
    with pytest.raises(OutOfResources, match=r"needs 9\.8 KiB of disk at .* Got 1 bytes"):
        download(f"{server.url}/whole", tmp_path / "target" / "file")
    assert entries(tmp_path / "target") == []


def test_no_space_while_writing(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (server.folder / "whole").write_bytes(CONTENT)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutOfResources, match="No space left on the disk while writing the download of"):
        download(f"{server.url}/whole", tmp_path / "target" / "file")
    assert entries(tmp_path / "target") == []


def make_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def test_wanted_members_are_unpacked(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"top/raw/edge.csv": b"edges", "top/raw/other": b"other"})
    extract(archive, tmp_path / "out", ["raw/edge.csv"])
    assert (tmp_path / "out" / "raw" / "edge.csv").read_bytes() == b"edges"
    assert not (tmp_path / "out" / "raw" / "other").exists()
    record = tmp_path / "out" / "raw" / "edge.csv.sha256"
    assert record.read_text().strip() == hashlib.sha256(b"edges").hexdigest()
    with pytest.raises(FileCorrupt, match="has no file 'raw/feat'"):
        extract(archive, tmp_path / "out", ["raw/feat"])


@pytest.mark.parametrize("name", ["../escaped", "top/../../escaped", "/tmp/escaped", "top\\..\\escaped", "C:/escaped"])
def test_a_zip_whose_paths_escape_is_refused_whole(tmp_path: Path, name: str) -> None:
    archive = make_zip(tmp_path / "a.zip", {"top/raw/edge.csv": b"edges", "top/harmless": b""})
    with zipfile.ZipFile(archive, "a") as file:
        info = zipfile.ZipInfo("x")
        info.filename = name
        file.writestr(info, b"")
    with pytest.raises(FileCorrupt, match="would be written outside its folder, so nothing was unpacked"):
        extract(archive, tmp_path / "out", ["raw/edge.csv"])
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_damaged_zip_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"top/raw/edge.csv": CONTENT})
    archive.write_bytes(archive.read_bytes().replace(b"0123456789012", b"0123456789XXX", 1))
    with pytest.raises(FileCorrupt, match="cannot be read as a zip archive"):
        extract(archive, tmp_path / "out", ["raw/edge.csv"])
    assert entries(tmp_path / "out") == []
    archive.write_bytes(CONTENT)
    with pytest.raises(FileCorrupt, match="cannot be read as a zip archive"):
        extract(archive, tmp_path / "out", ["raw/edge.csv"])
