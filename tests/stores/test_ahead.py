from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from polyformer.errors import FileCorrupt
from polyformer.graph import Graph
from polyformer.stores.ahead import ReadAhead, window_order
from polyformer.stores.rows import TokenRows
from polyformer.tokens import open_tokens, write_tokens

COUNT = 300


@pytest.mark.parametrize(("count", "chunk", "window"), [(1, 4, 8), (7, 4, 8), (8, 4, 8), (1000, 7, 70), (999, 5, 2000)])
def test_every_position_once_in_an_order_of_the_seed_alone(count: int, chunk: int, window: int) -> None:
    def order(seed: int) -> list[int]:
        return np.concatenate(list(window_order(count, chunk, window, np.random.default_rng(seed)))).tolist()

    assert sorted(order(1)) == list(range(count))
    assert order(1) == order(1)
    assert count < 8 or order(1) != order(2)


def test_windows_are_made_of_chunks_and_mix_them() -> None:
    count, chunk, window = 1000, 10, 100
    windows = list(window_order(count, chunk, window, np.random.default_rng(0)))
    assert [len(part) for part in windows] == [window] * 10
    for part in windows:
        runs = 1 + np.count_nonzero(np.diff(np.sort(part)) > 1)
        assert runs <= window // chunk + 1  # read in few pieces
        assert np.count_nonzero(np.abs(np.diff(part)) == 1) < 20  # visited in none of them


@pytest.fixture
def rows(tmp_path: Path) -> TokenRows:
    graph = Graph(np.empty((2, 0), np.int64), np.arange(COUNT * 3).reshape(COUNT, 3))
    write_tokens(graph, tmp_path / "tokens", order=0)
    return TokenRows(open_tokens(tmp_path / "tokens"))


def reading(rows: TokenRows, window: int, batches: Iterator[torch.Tensor]) -> ReadAhead:
    return ReadAhead(rows, [rows.buffer(window) for _ in range(2)], ((batch, batch.numpy()) for batch in batches))


@pytest.mark.parametrize("size", [1, 7, 40, 50, 300])
@pytest.mark.parametrize("window", [1, 40, 300])
@pytest.mark.parametrize("slice_rows", [3, 1000])
def test_batches_and_slices_of_any_size(rows: TokenRows, size: int, window: int, slice_rows: int) -> None:
    order = torch.from_numpy(np.random.default_rng(0).permutation(COUNT))
    reader, seen = reading(rows, window, iter(order.split(size))), []
    for batch in reader:
        seen.append(batch)
        for part in batch.split(slice_rows):
            tokens = reader.take(part.numpy())
            assert tokens is not None
            assert torch.equal(tokens[:, 0, 0], 3.0 * part)
    reader.close()
    assert torch.equal(torch.cat(seen), order)
    assert [len(batch) for batch in seen] == [len(batch) for batch in order.split(size)]


def test_what_was_not_announced_is_not_given(rows: TokenRows) -> None:
    reader = reading(rows, 50, iter(torch.arange(100).split(10)))
    batches = iter(reader)
    assert next(batches).tolist() == list(range(10))
    assert reader.take(np.array([4, 5])) is None
    reader.close()


def test_errors_reach_the_caller(rows: TokenRows) -> None:
    def broken() -> Iterator[torch.Tensor]:
        yield torch.arange(10)
        raise ValueError("from the batches")

    with pytest.raises(ValueError, match="from the batches"):
        list(reading(rows, 5, broken()))
    with rows.path.open("r+b") as file:
        file.truncate(200)
    with pytest.raises(FileCorrupt, match="ends before row"):
        list(reading(rows, 50, iter(torch.arange(COUNT).split(10))))


def test_no_thread_is_left(rows: TokenRows) -> None:
    before = threading.active_count()
    reader = reading(rows, 20, iter(torch.arange(COUNT).split(10)))
    next(iter(reader))
    reader.close()
    assert threading.active_count() == before
