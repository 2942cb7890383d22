"""Requests that wait are answered in one batch of the model, by one thread."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from polyformer.server.state import State

__all__ = ["Batcher", "RowAnswers"]

_MOST_ROWS = 4096
"""Rows of a batch, beyond which a request waits for the next one."""


@dataclass(frozen=True, eq=False)
class RowAnswers:
    """What the model says of some rows: ``scores`` (n, C) and, if asked for, ``coefficients`` (n, H, K+1)."""

    scores: np.ndarray
    coefficients: np.ndarray | None


@dataclass(eq=False)
class _Question:
    state: State
    rows: np.ndarray
    filters: bool
    future: Future[RowAnswers] = field(default_factory=Future)


@dataclass(eq=False)
class _Work:
    call: Any
    future: Future[Any] = field(default_factory=Future)


class Batcher:
    """The one thread that computes: it takes all questions that wait and asks the model once.

    Attributes:
        batches: how many batches there were; ``questions`` and ``rows`` count what was in them.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Question | _Work | None] = queue.SimpleQueue()
        self.batches = self.questions = self.rows = 0
        self._thread = threading.Thread(target=self._run, name="polyformer-model", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many questions wait."""
        return self._queue.qsize()

    def ask(self, state: State, rows: np.ndarray, filters: bool = False) -> Future[RowAnswers]:
        """Scores of rows of a state and, with ``filters``, coefficients, as soon as the model comes to them."""
        question = _Question(state, rows, filters and state.answers.tokens_response is not None)
        self._queue.put(question)
        return question.future

    def run(self, call: Any) -> Future[Any]:
        """Call a function in the thread of the model, in its turn."""
        work = _Work(call)
        self._queue.put(work)
        return work.future

    def close(self) -> None:
        """End the thread once it has answered what waits."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)  # of this thread: for so few rows, a second one costs more than it computes
        held: _Question | _Work | None = self._queue.get()
        while held is not None:
            if isinstance(held, _Work):
                _settle(held)
                held = self._queue.get()
                continue
            batch, held = self._collect(held)
            if batch:
                self._answer(batch)
            if held is _EMPTY:
                held = self._queue.get()

    def _collect(self, first: _Question) -> tuple[list[_Question], Any]:
        """Questions of one state that wait, and the next thing in the queue that is none of them."""
        batch, count = [first], len(first.rows)
        while True:
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                return batch, _EMPTY
            if (
                not isinstance(following, _Question)
                or following.state is not first.state
                or count + len(following.rows) > _MOST_ROWS
            ):
                return batch, following
            batch.append(following)
            count += len(following.rows)

    def _answer(self, batch: list[_Question]) -> None:
        batch = [question for question in batch if question.future.set_running_or_notify_cancel()]
        if not batch:
            return
        self.batches += 1
        self.questions += len(batch)
        try:
            answers = _answer_together(batch)
            self.rows += sum(len(question.rows) for question in batch)
        except BaseException as error:
            for question in batch:
                question.future.set_exception(error)
            return
        for question, answer in zip(batch, answers, strict=True):
            question.future.set_result(answer)


_EMPTY: Any = object()
"""Stands for a queue in which nothing waits."""


def _answer_together(batch: list[_Question]) -> list[RowAnswers]:
    """One call of the model for the scores of all questions, and one for the coefficients of those that want them."""
    answers = batch[0].state.answers
    ends = np.cumsum([len(question.rows) for question in batch])
    scores = np.split(answers.scores(np.concatenate([question.rows for question in batch])), ends[:-1])
    wanting = [place for place, question in enumerate(batch) if question.filters]
    coefficients: dict[int, np.ndarray] = {}
    if wanting:
        rows = [batch[place].rows for place in wanting]
        parts = np.split(answers.coefficients(np.concatenate(rows)), np.cumsum([len(part) for part in rows])[:-1])
        coefficients = dict(zip(wanting, parts, strict=True))
    return [RowAnswers(part, coefficients.get(place)) for place, part in enumerate(scores)]


def _settle(work: _Work) -> None:
    if not work.future.set_running_or_notify_cancel():
        return
    try:
        work.future.set_result(work.call())
    except BaseException as error:
        work.future.set_exception(error)
