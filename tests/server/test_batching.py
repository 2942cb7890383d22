"""Requests that wait are answered in one batch; each gets its own rows, and a failure reaches all that share it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from polyformer.server.batching import Batcher


class Model:
    """Answers for rows with their own numbers; waits at a gate, so that questions gather behind it."""

    tokens_response = np.ones((2, 3))

    def __init__(self) -> None:
        self.gate, self.calls, self.entered = threading.Event(), list[list[int]](), threading.Event()

    def scores(self, rows: np.ndarray) -> np.ndarray:
        self.entered.set()
        assert self.gate.wait(10)
        if (rows < 0).any():
            raise ValueError("a row below zero")
        self.calls.append(rows.tolist())
        return np.stack([rows, -rows], axis=1).astype(np.float64)

    def coefficients(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, None, None] * np.ones((1, 1, 2))


def ask_together(batcher: Batcher, model: Model, questions: list[tuple[Any, list[int]]]) -> list[Future[Any]]:
    """Questions that all wait while the model is at its first one."""
    first = batcher.ask(questions[0][0], np.array(questions[0][1]))
    assert model.entered.wait(10)
    rest = [batcher.ask(state, np.array(rows), filters=len(rows) == 1) for state, rows in questions[1:]]
    model.gate.set()
    return [first, *rest]


def test_questions_that_wait_share_one_call() -> None:
    model, batcher = Model(), Batcher()
    state: Any = SimpleNamespace(answers=model)
    futures = ask_together(batcher, model, [(state, [1]), (state, [2, 3]), (state, [4]), (state, [5, 6])])
    answers = [future.result(10) for future in futures]
    assert model.calls == [[1], [2, 3, 4, 5, 6]]
    assert [answer.scores[:, 0].tolist() for answer in answers] == [[1], [2, 3], [4], [5, 6]]
    assert answers[2].coefficients[0, 0].tolist() == [4, 4]
    assert answers[1].coefficients is None
    assert (batcher.batches, batcher.questions, batcher.rows) == (2, 4, 6)
    batcher.close()


def test_the_model_computes_with_one_thread_and_others_keep_theirs() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    batcher = Batcher()
    try:
        assert batcher.run(torch.get_num_threads).result(10) == 1
        assert torch.get_num_threads() == 2
    finally:
        batcher.close()
        torch.set_num_threads(before)


def test_questions_of_two_versions_are_kept_apart() -> None:
    model, batcher = Model(), Batcher()
    old: Any = SimpleNamespace(answers=model)
    new: Any = SimpleNamespace(answers=model)
    futures = ask_together(batcher, model, [(old, [1]), (old, [2]), (new, [3]), (new, [4])])
    assert [future.result(10).scores[0, 0] for future in futures] == [1, 2, 3, 4]
    assert model.calls == [[1], [2], [3, 4]]
    batcher.close()


def test_a_failure_does_not_end_the_thread() -> None:
    model, batcher = Model(), Batcher()
    state: Any = SimpleNamespace(answers=model)
    futures = ask_together(batcher, model, [(state, [-1])])
    with pytest.raises(ValueError, match="below zero"):
        futures[0].result(10)
    with pytest.raises(ZeroDivisionError):
        batcher.run(lambda: 1 / 0).result(10)
    assert batcher.run(lambda: 7).result(10) == 7
    assert batcher.ask(state, np.array([8])).result(10).scores[0, 0] == 8
    batcher.close()
