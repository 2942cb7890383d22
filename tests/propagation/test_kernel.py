"""The kernel against scipy, entry by entry, with everything that can be fused into it."""

from __future__ import annotations

import _ctypes
import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyformer import native as module
from polyformer.errors import InvalidParameter, MissingDependency
from polyformer.native import kernel_name
from polyformer.propagation.kernel import KERNEL_WIDTHS, SparseBlock, column_dots, column_subtract


def block(rows: int, columns: int, pattern: bool) -> SparseBlock:
    matrix = sp.csr_matrix(sp.random(rows, columns, 0.1, random_state=np.random.default_rng(0), dtype=np.float32))
    made = SparseBlock.of_matrix(matrix)
    return SparseBlock(made.indptr, made.indices, None, made.shape) if pattern else made


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pattern", [True, False])
@pytest.mark.parametrize("width", KERNEL_WIDTHS)
def test_fused_step(kernel: str, width: int, pattern: bool, dtype: type) -> None:
    random = np.random.default_rng(1)
    matrix = block(300, 300, pattern)
    x, previous = random.standard_normal((2, 300, width)).astype(dtype)
    scale = random.random(300)
    emitted = np.zeros((300, 3, width), dtype)
    used = width - 3
    expected = matrix.to_scipy(np.float64) @ x + 0.5 * x
    expected = -2.0 * scale[:, None] * expected - previous
    out = previous.copy()  # in place, as the recurrence does it
    matrix.product(
        x,
        out,
        row_scale=scale,
        loop=0.5,
        alpha=-2.0,
        previous=out,
        beta=-1.0,
        emit=emitted[:, 1, :used],
        emit_scale=np.full(300, 3.0, dtype),
    )
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert np.allclose(out, expected, atol=tolerance)
    assert np.allclose(emitted[:, 1, :used], 3 * expected[:, :used], atol=3 * tolerance)
    assert not emitted[:, [0, 2]].any()
    assert not emitted[:, 1, used:].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pattern", [True, False])
@pytest.mark.parametrize("columns", [1, 21, 100])
def test_wide_product(kernel: str, columns: int, pattern: bool, dtype: type) -> None:
    matrix = block(70, 200, pattern)
    x = np.random.default_rng(6).standard_normal((200, columns)).astype(dtype)
    out = matrix.wide_product(x)
    assert out.dtype == dtype
    assert np.allclose(out, matrix.to_scipy(np.float64) @ x, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pattern", [True, False])
def test_width_does_not_change_a_bit(pattern: bool, dtype: type) -> None:
    random = np.random.default_rng(4)
    matrix, scale = block(300, 300, pattern), random.random(300)
    x, previous = random.standard_normal((2, 300, 64)).astype(dtype)
    results = []
    for width in KERNEL_WIDTHS:
        parts = []
        for start in range(0, 64, width):
            z, out = (array[:, start : start + width].copy() for array in (x, previous))
            parts.append(matrix.product(z, out, row_scale=scale, loop=1.0, alpha=-2.0, previous=out, beta=-1.0))
        results.append(np.concatenate(parts, axis=1))
    assert all(np.array_equal(results[0], result) for result in results[1:])


def test_rectangular_product(kernel: str) -> None:
    matrix = block(70, 200, pattern=False)
    x = np.random.default_rng(2).standard_normal((200, 16)).astype(np.float32)
    out = np.empty((70, 16), np.float32)
    assert np.allclose(matrix.product(x, out), matrix.to_scipy(np.float64) @ x, atol=1e-5)


def test_column_sums(kernel: str) -> None:
    random = np.random.default_rng(3)
    basis, x = random.standard_normal((4, 20_000, 8)), random.standard_normal((20_000, 8))
    dots = column_dots(basis, x)
    assert np.allclose(dots, np.einsum("jnc,nc->jc", basis, x))
    expected = x - np.einsum("jnc,jc->nc", basis, dots)
    column_subtract(basis, dots, x)
    assert np.allclose(x, expected)


def test_native_kernel_is_built_and_used() -> None:
    """A compiler error would silently fall back to scipy: this is where it would show."""
    assert kernel_name() == "native"


@pytest.mark.parametrize(
    ("state", "reason"),
    [("absent", "is not built"), ("damaged", "cannot be loaded"), ("foreign", "cannot be loaded"), ("old", "another")],
)
def test_fallback_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, state: str, reason: str
) -> None:
    built, library = module.LIBRARY, tmp_path / "_kernel.so"
    monkeypatch.setattr(module, "LIBRARY", library)
    if state == "damaged":
        library.write_bytes(b"\x7fELF and nothing more")
    elif state == "foreign":  # a library without our functions
        library.symlink_to(_ctypes.__file__)
    elif state == "old":
        library.symlink_to(built)
        monkeypatch.setattr(module.border, "ABI", -1)
    module._native.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, logger="polyformer"):
            assert kernel_name() == "scipy"
            assert kernel_name() == "scipy"
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert reason in caplog.text
        monkeypatch.setenv("POLYFORMER_KERNEL", "native")
        with pytest.raises(MissingDependency, match=f"The native kernel .*{reason}"):
            kernel_name()
    finally:
        module._native.cache_clear()
    monkeypatch.setenv("POLYFORMER_KERNEL", "gpu")
    with pytest.raises(InvalidParameter, match="must be auto, native or scipy"):
        kernel_name()


def test_threads_follow_torch() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    assert module.num_threads() == 3
    torch.set_num_threads(before)
