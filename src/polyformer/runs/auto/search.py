"""The race itself: candidates train in turns on one split, the better half goes on, and the best becomes the run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyformer.errors import InvalidData, InvalidParameter, OutputExists, PolyformerError, TrainingInterrupted
from polyformer.files import move_over, new_directory
from polyformer.metrics import METRICS
from polyformer.reporter import SILENT, EpochRecord, Reporter, Tee
from polyformer.runs.auto.candidates import candidate_requests
from polyformer.runs.auto.halving import num_rounds, slice_seconds, survivors
from polyformer.runs.auto.leaderboard import make_leaderboard
from polyformer.runs.auto.state import CANDIDATE_RUNS, RaceState, Standing
from polyformer.runs.config import CONFIG, write_epochs
from polyformer.runs.data import load_task
from polyformer.runs.directory import locked_directory, read_result, tokens_folder, write_result
from polyformer.runs.execution import execute_run
from polyformer.runs.facts import DataFacts
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["DEFAULT_BUDGET", "Watcher", "execute_auto"]

DEFAULT_BUDGET = 300.0
"""Seconds for the whole race."""

Watcher = Callable[[str, Standing], None]
"""Told a candidate's name and standing after each of its turns."""


def execute_auto(
    request: RunRequest,
    out: Path,
    *,
    budget: float | None = None,
    resume: bool = False,
    reporter: Reporter = SILENT,
    watch: Watcher = lambda name, standing: None,
) -> dict[str, Any]:
    """Train the candidates within the budget; ``out`` becomes the run directory of the best. Returns its result.

    Every candidate is an ordinary run under ``out/candidates``. The result has one more key, ``auto``: see
    :func:`polyformer.runs.auto.leaderboard.make_leaderboard`.

    Args:
        request: what the user asked for; its model is not read.
        budget: seconds; 300 by default, or those of the race that goes on. Each candidate that starts trains at least
            one epoch, so a small budget on a large graph is exceeded.
        resume: ``out`` holds a race; go on with it. A finished race gives its result at once.
        reporter: hears of the data and of every epoch; where it wants to stop after an epoch, the race is saved and
            :class:`TrainingInterrupted` raised.
        watch: is told how a candidate stands after each of its turns.
    """
    if budget is not None and budget <= 0:
        raise InvalidParameter(f"'budget' must be more than 0 seconds. Got {budget:g}.")
    for name in ("preset", "tokens", "start_from"):
        if getattr(request, name) is not None:
            raise InvalidParameter(f"'{name}' must be left out with the model auto. Got {getattr(request, name)}.")
    state = RaceState.load(out) if resume else None
    if state is not None and state.winner is not None and (result := _whole_result(out)) is not None:
        return result
    requests = candidate_requests(request if state is None else state.request)
    # Data that cannot be trained on is refused before anything is written.
    task, split = load_task(next(iter(requests.values())), reporter=reporter)
    reporter.say(DataFacts.of(task, split).sentence)
    if state is None:
        state = RaceState.begin(request, requests, DEFAULT_BUDGET if budget is None else budget)
        _create(out, state)
    elif budget is not None:
        state.budget = budget
    race = _Race(out, state, requests, task, split, reporter, watch)
    with locked_directory(out):
        if state.winner is None:
            race.run_rounds()
            race.decide()
        return race.promote()


def _create(out: Path, state: RaceState) -> None:
    try:
        with new_directory(out) as folder:
            state.save(folder)
    except OutputExists:
        raise OutputExists(
            f"The run directory '{out}' already exists. Choose another --out, or continue it with --resume."
        ) from None


def _whole_result(out: Path) -> dict[str, Any] | None:
    """The result of a race that is over, leaderboard included."""
    result = read_result(out) if (out / CONFIG).exists() else None
    return result if result is not None and "auto" in result else None


class _Turn(Reporter):
    """Ends a candidate's turn after so many seconds of training."""

    def __init__(self, seconds: float) -> None:
        self.seconds_left = seconds

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        self.seconds_left -= record.seconds

    def should_stop(self) -> bool:
        return self.seconds_left < 0


class _Race:
    """Candidates on their way to one run directory."""

    def __init__(
        self,
        out: Path,
        state: RaceState,
        requests: dict[str, RunRequest],
        task: Task,
        split: Split,
        reporter: Reporter,
        watch: Watcher,
    ) -> None:
        self.out, self.state, self.requests = out, state, requests
        self.task, self.split = task, split
        self.reporter, self.watch = reporter, watch
        self.larger_is_better = METRICS[task.metric].larger_is_better
        self._started = time.monotonic() - state.spent

    def place(self, name: str) -> Path:
        """The run directory of a candidate."""
        return self.out / CANDIDATE_RUNS / name

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.state.budget - (time.monotonic() - self._started)

    def save(self) -> None:
        """Write how the race stands."""
        self.state.spent = time.monotonic() - self._started
        self.state.save(self.out)

    def run_rounds(self) -> None:
        """Train until the rounds are over, nobody can go on, or the budget is spent."""
        state, rounds = self.state, num_rounds(len(self.requests))
        while state.round < rounds and (state.turns or state.trainable()):
            while waiting := state.trainable():
                if self.left <= 0 and any(score is not None for score in state.scores().values()):
                    return
                self._take_turn(waiting[0], slice_seconds(self.left, rounds - state.round, len(waiting)))
                state.turns.append(waiting[0])
                self.save()
            state.contenders, others = survivors(state.contenders, state.scores(), self.larger_is_better)
            for name in others:
                if state.standings[name].status == "training":
                    state.standings[name].status = "dropped"
            state.round, state.turns = state.round + 1, []
            self.save()

    def _take_turn(self, name: str, seconds: float) -> None:
        """Train a candidate for so many seconds. Its preparation is not counted, because that would favour models
        without one."""
        standing, place = self.state.standings[name], self.place(name)
        resume = (place / CONFIG).exists()
        request = Run.open(place).request if resume else self.requests[name]
        began, reporter = time.monotonic(), Tee(self.reporter.quiet(), _Turn(seconds))
        try:
            execute_run(request, place, resume=resume, reporter=reporter)
            standing.status = "finished"
        except TrainingInterrupted:
            standing.status = "training"
        except PolyformerError as error:
            standing.status, standing.error = "failed", str(error)
        standing.seconds += time.monotonic() - began
        if (place / CONFIG).exists():
            self._read_progress(standing, Run(place))
        self.watch(name, standing)
        if self.reporter.should_stop():
            self.save()
            raise TrainingInterrupted(
                f"The search was stopped while {name} was trained. Nothing is lost: continue with "
                f"polyformer train --resume --out {self.out}"
            )

    def _read_progress(self, standing: Standing, run: Run) -> None:
        records = run.metrics
        scores = [record["val"] for record in records if record["val"] is not None]
        standing.epochs = len(records)
        standing.val = (max if self.larger_is_better else min)(scores, default=None)

    def decide(self) -> None:
        """Let the run with the best validation score end where it is, and note how all candidates ended."""
        scored = {name: score for name, score in self.state.scores().items() if score is not None}
        if not scored:
            errors = [one.error for one in self.state.standings.values() if one.error is not None]
            raise InvalidData(f"None of {', '.join(self.requests)} could be trained. The first error: {errors[0]}")
        winner = (max if self.larger_is_better else min)(scored, key=lambda name: scored[name])
        run = Run(self.place(winner))
        if run.result is None:
            write_epochs(run.path, self.state.standings[winner].epochs)
            execute_run(run.request, run.path, resume=True)
        self.state.leaderboard = make_leaderboard(self.state.standings, winner, self.place, self.task, self.split)
        self.state.winner = winner
        self.save()

    def promote(self) -> dict[str, Any]:
        """Make the winner's run directory the run; an interruption at any moment is made good by the next call."""
        assert self.state.winner is not None
        source = self.place(self.state.winner)
        if source.exists():
            for path in sorted(source.iterdir(), key=lambda path: path.name == CONFIG):
                if path.name != ".lock":
                    move_over(path, self.out / path.name)
            shutil.rmtree(source)
        for name in self.requests:
            shutil.rmtree(tokens_folder(self.place(name)), ignore_errors=True)
        result = read_result(self.out)
        assert result is not None, "the winner's run was finished"
        budget = {"budget": self.state.budget, "seconds": round(self.state.spent, 1)}
        result["auto"] = {**budget, **(self.state.leaderboard or {})}
        write_result(self.out, result)
        return result
