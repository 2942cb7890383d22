"""Faults that were found once, each as a test."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch

from polyformer.cli.node_choice import select_nodes
from polyformer.errors import FileCorrupt, InvalidData, OutOfResources, WriteFailed
from polyformer.files import file_digest, read_npy, read_tensors, reading, write_json, write_tensors, write_whole
from polyformer.files.run_schemas import WEIGHTS
from polyformer.files.schema import Schema, TableOf
from polyformer.formats.matrices import read_matlab
from polyformer.formats.number_files import csr_from_arrays
from polyformer.graph import Graph
from polyformer.tasks import Task
from polyformer.tuning.journal_lock import JournalLock
from polyformer.verification import verify_directory
from tests.cli.test_cli import BOARD, FAST, run
from tests.edits import rewrite_json
from tests.files.test_seals import task


def test_new_files_have_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_json(tmp_path / "a.json", {}, Schema("a thing", TableOf()))
        task().save(tmp_path / "graph")
    finally:
        os.umask(before)
    for path in (tmp_path / "a.json", tmp_path / "graph", *(tmp_path / "graph").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path


def test_ids_do_not_become_formulas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["=HYPERLINK(1)", "+1+1", "@x", "-3", "plain"]
    lines = [f"{name},{i % 2},{i}.5" for i, name in enumerate(names * 8)]
    nodes = [line.replace(",", f"{i},", 1) for i, line in enumerate(lines)]
    Path("nodes.csv").write_text("\n".join(["id,label,x", *nodes]))
    ids = [line.split(",")[0] for line in nodes]
    Path("edges.csv").write_text("\n".join(["source,target", *(f"{a},{b}" for a, b in itertools.pairwise(ids))]))
    assert run("train", ".", "--out", "run", "--set", "epochs=1", "--no-report", "--model", "mlp") == 0
    assert run("predict", "run", "--out", "p.csv") == 0
    first = [line.split(",")[0].strip('"') for line in Path("p.csv").read_text().splitlines()[1:]]
    assert not [cell for cell in first if cell[0] in "=+@"]
    assert "'=HYPERLINK(1)0" in first


def test_the_header_of_a_model_has_one_name_so_that_equal_models_are_equal_files(tmp_path: Path) -> None:
    tensors = {name: torch.arange(3.0) for name in "cab"}
    for name in ("one", "two"):
        write_tensors(tmp_path / name, dict(sorted(tensors.items())) if name == "one" else tensors, {"threshold": 0.5})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_changed_header_of_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    write_tensors(tmp_path / "w", {"a": torch.arange(3.0)}, {"format": 1, "threshold": 0.25})
    content = (tmp_path / "w").read_bytes()
    for old, new in ((b"0.25", b"0.75"), (b'"a"', b'"b"'), (b"[3]", b"[1]")):
        (tmp_path / "w").write_bytes(content.replace(old, new))
        with pytest.raises(FileCorrupt):
            read_tensors(tmp_path / "w", WEIGHTS)


def test_a_run_directory_that_is_removed_during_training_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from polyformer.training.loop import Trainer

    original = Trainer._run_epoch

    def removing(trainer: Any) -> None:
        original(trainer)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    monkeypatch.setattr(Trainer, "_run_epoch", removing)
    assert run("train", BOARD, "--out", tmp_path / "run", *FAST) == 1
    assert "was removed while it was in use" in capsys.readouterr().err


def test_filters_reserve_their_space_before_it_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", BOARD, "--out", tmp_path / "run", *FAST) == 0

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert run("filters", tmp_path / "run", "--out", tmp_path / "f.parquet") == 1
    assert "No space left on the disk" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    task().save(tmp_path / "graph")
    (tmp_path / "graph" / "labels.npy").unlink()
    os.mkfifo(tmp_path / "graph" / "labels.npy")
    with pytest.raises(FileCorrupt):
        Task.load(tmp_path / "graph")
    rewrite_json(tmp_path / "graph" / "manifest.json", files={})
    with pytest.raises(FileCorrupt, match="a pipe or a device"):
        Task.load(tmp_path / "graph")


OUT_OF_MEMORY = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    SystemError("<built-in function compile> returned NULL without setting an exception"),
    SystemError("error return without exception set"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=str)
def test_memory_that_runs_out_is_no_damaged_file(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(OutOfResources, match="not enough memory"), reading(tmp_path):
        raise error


def test_a_killed_worker_does_not_hold_the_journal(tmp_path: Path) -> None:
    lock = JournalLock(tmp_path / "study")
    code = f"import fcntl, time; file = open({str(lock._path)!r}, 'wb'); fcntl.flock(file, 2)"
    code += "; print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    began = time.monotonic()
    assert lock.acquire()
    lock.release()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("ids.npy", np.zeros(40, np.int64), "a different id for every node"),
        ("ids.npy", np.arange(39), "must hold 40 ids"),
        ("features.npy", np.full((40, 3), np.nan, np.float32), "must be finite"),
        ("features.npy", np.ones(40, np.float32), "must hold a matrix"),
        ("features.npy", np.ones((40, 3), complex), "must hold a matrix"),
        ("features.npy", np.ones((40, 3), ">f4"), "order of another kind of machine"),
        ("labels.npy", np.full(40, -7), "must be 0, 1"),
    ],
)
def test_arrays_of_a_directory_without_hashes_are_still_looked_at(
    tmp_path: Path, name: str, array: np.ndarray, words: str
) -> None:
    task().save(tmp_path / "graph")
    np.save(tmp_path / "graph" / name, array)
    rewrite_json(tmp_path / "graph" / "manifest.json", files={})
    with pytest.raises(FileCorrupt, match=words):
        Task.load(tmp_path / "graph")


def test_big_endian_arrays_are_read_as_what_they_are(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 2, 3], ">i4"))
    array = read_npy(tmp_path / "a.npy")
    assert (array.tolist(), array.dtype) == ([1, 2, 3], np.int32)


def test_verify_reads_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Graph([[0, 1], [1, 2]], np.zeros((3, 1))).save(tmp_path / "graph")
    assert run("verify", tmp_path / "graph") == 0
    assert "3 nodes, 2 edges" in capsys.readouterr().out
    assert run("train", BOARD, "--out", tmp_path / "run", *FAST) == 0
    assert len(verify_directory(tmp_path / "run")) >= 2
    state = tmp_path / "run" / "checkpoint" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-3] ^= 4
    state.write_bytes(content)
    assert run("verify", tmp_path / "run") == 2
    assert "state.safetensors' has been changed or damaged" in capsys.readouterr().err
    for place in (tmp_path, tmp_path / "nowhere"):
        assert run("verify", place) == 2


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with contextlib.suppress(WriteFailed), write_whole(tmp_path / "a") as file:
        file.write(b"new")
        raise WriteFailed("full")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("content", [b"1\n2\nx\n", b"\xff\xfe", b"1e400\n", b"9" * 5000, b"0x10\n", b"1 2\n3\n"])
def test_a_list_of_nodes_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "nodes.txt").write_bytes(content)
    with pytest.raises(InvalidData, match="must hold one node number a line"):
        select_nodes(str(tmp_path / "nodes.txt"), np.arange(20))


def test_a_list_of_nodes_that_claims_terabytes_is_not_read(tmp_path: Path) -> None:
    """A hole of a file costs nothing; reading it went on for ever."""
    (tmp_path / "nodes.txt").write_text("1\n")
    os.truncate(tmp_path / "nodes.txt", 1 << 43)
    with pytest.raises(OutOfResources):
        select_nodes(str(tmp_path / "nodes.txt"), np.arange(20))


def test_blocks_of_unfinished_tokens_that_grew_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "block").write_bytes(b"x")
    os.truncate(tmp_path / "block", 1 << 43)
    assert file_digest(tmp_path / "block", most=1000) is None


@pytest.mark.parametrize("matrix", [np.array(["aa", "bb"]), np.ones((2, 3, 4)), np.array([[1, "x"]], object)])
def test_an_adjacency_of_matlab_that_is_no_matrix_of_numbers(tmp_path: Path, matrix: np.ndarray) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"A": matrix})
    with pytest.raises(FileCorrupt, match="must be a matrix of numbers"):
        read_matlab(tmp_path / "a.mat")


def test_words_as_values_of_a_published_matrix(tmp_path: Path) -> None:
    matrix = {"data": np.array([b"a"]), "indices": np.array([0]), "indptr": np.array([0, 1]), "shape": np.array([1, 1])}
    with pytest.raises(FileCorrupt, match="not real numbers"):
        csr_from_arrays(matrix, "", tmp_path)
