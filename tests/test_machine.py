"""What the machine is asked for."""

from __future__ import annotations

import ctypes

import pytest
import torch

from polyformer import machine
from polyformer.machine import keeping_freed_memory, resident_bytes

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
