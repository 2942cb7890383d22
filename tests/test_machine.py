"""What the machine is asked for."""

from __future__ import annotations

import ctypes

import pytest
import torch

from polyformer.machine import keeping_freed_memory, resident_bytes


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_freed_memory_is_kept_inside_and_given_back_after() -> None:
    size = 64 << 20
    with keeping_freed_memory():
        block = torch.ones(size // 4)
        full = resident_bytes()
        del block
        kept = resident_bytes()
    assert abs(full - kept) < size // 4
    assert kept - resident_bytes() > size // 2
