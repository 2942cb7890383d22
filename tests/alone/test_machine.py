"""What the machine is asked for."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import polyformer as pf
from polyformer import machine
from polyformer.cli import main
from polyformer.datasets import load_dataset
from polyformer.machine import keeping_freed_memory, resident_bytes
from polyformer.training import loop

pytestmark = pytest.mark.slow
glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")


@glibc
def test_freed_memory_is_kept_inside_and_given_back_after() -> None:
    size = 64 << 20
    with keeping_freed_memory():
        block = torch.ones(size // 4)
        full = resident_bytes()
        del block
        kept = resident_bytes()
    assert abs(full - kept) < size // 4
    assert kept - resident_bytes() > size // 2


@glibc
def test_what_is_kept_is_given_back_once_it_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 32 << 20
    monkeypatch.setattr(machine, "_MOST_KEPT", 2 * size)
    with keeping_freed_memory() as trim:
        trim()
        for blocks in (1, 3):
            freed = [torch.ones(size // 4) for _ in range(blocks)]
            del freed
            before = resident_bytes()
            trim()
            assert (resident_bytes() < before - 2 * size) == (blocks == 3)


def test_only_the_command_line_changes_the_allocator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    @contextlib.contextmanager
    def counted() -> Iterator[Callable[[], None]]:
        calls.append("entered")
        yield lambda: calls.append("step")

    monkeypatch.setattr(loop, "keeping_freed_memory", counted)
    board, few = "minefield:width=8,height=8", {"order": 1, "hidden_channels": 4, "heads": 1, "epochs": 1}
    task = load_dataset(board)
    pf.PolyFormerClassifier(**few).fit(task.graph, task.labels, train=task.splits[0].train, val=task.splits[0].val)
    assert calls == []
    settings = [f"--set={name}={value}" for name, value in few.items()]
    with pytest.raises(SystemExit, match="0"):
        main(["train", board, *settings, "--no-report", "--out", str(tmp_path / "run")])
    assert calls[0] == "entered"
    assert set(calls[1:]) == {"step"}
