"""A study: trials of settings, kept in a journal file from which it goes on, worked on by several processes.

The first trials are settings that are known to be good; then TPE draws them, the median rule ends those that fall
behind, and the validation score alone decides.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyformer.cluster import capacity, connected
from polyformer.durations import format_seconds
from polyformer.errors import InvalidParameter, OutOfResources, WorkerLost
from polyformer.machine import num_cores, usable_memory
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.request import RunRequest
from polyformer.tuning.journal import Search, claim, open_study
from polyformer.tuning.space import first_guesses
from polyformer.tuning.trials import ended_trials, held, take_back
from polyformer.tuning.workers import in_processes, on_ray

if TYPE_CHECKING:
    import optuna

__all__ = ["Best", "tune"]


@dataclass(frozen=True)
class Best:
    """What a study has found: the validation score and every setting of the best trial that differs from a default."""

    score: float
    settings: dict[str, Any]
    trials: int
    stopped: bool


def tune(
    request: RunRequest,
    space: dict[str, Sequence[Any]],
    journal: Path,
    *,
    trials: int,
    splits: int = 1,
    larger_is_better: bool = True,
    workers: int | None = None,
    budget: float | None = None,
    reporter: Reporter = SILENT,
    ray: bool = False,
    address: str | None = None,
) -> Best:
    """Go on with the study in ``journal``, or start it, until it has so many trials.

    Trials that were under way when an earlier call was killed are tried again; a second call at a time is refused.

    Args:
        request: data, model, split, seed and the settings that are fixed.
        space: the settings that are searched.
        journal: the study's file, in a folder that all workers can write to.
        trials: finished ones in all, those of earlier calls included.
        splits: a trial's score is the mean over so many, from the request's on.
        larger_is_better: whether a larger score is better; False for a loss.
        workers: processes at a time, each on one thread; one for each core, or CPU of a cluster, by default.
        budget: seconds after which the search ends; the trials under way are tried again next time.
        reporter: hears a sentence on every trial that ends; where it wants to stop, the search ends as by the budget.
        ray: have the processes be tasks on a Ray cluster.
        address: address of the Ray cluster; by default a cluster is started on this machine.
    """
    search = Search(request, space, journal.absolute(), trials, splits, larger_is_better)
    study = open_study(journal, larger_is_better=larger_is_better)
    with held(journal):
        if claim(study, search):
            for guess in first_guesses(request, space):
                study.enqueue_trial(guess)
        take_back(study, search.journal)
        watch = _Watch(study, trials, budget, reporter)
        stopped, lost = _work(study, search, watch, workers, address, ray)
        watch()
    if lost and not stopped and len(watch.seen) < trials:
        raise WorkerLost(f"{lost} What has finished is in '{journal}': the same command goes on, with fewer --workers.")
    return _best(study, request, journal, stopped)


def _work(
    study: optuna.Study, search: Search, watch: _Watch, workers: int | None, address: str | None, ray: bool
) -> tuple[bool, str]:
    """Run the remaining trials; returns whether the search was stopped, and a sentence if workers were lost."""
    left = search.trials - len(watch.seen)
    if left <= 0:
        return False, ""
    if ray:
        with connected(address, workers):
            count, memory = capacity()
            return on_ray(search.within(memory), min(workers or count, left), watch), ""
    count = min(workers or num_cores(), left)
    return in_processes(study, search.within(usable_memory() // count), count, watch)


class _Watch:
    """Looks at a study now and then: says which trials have ended, and tells whether the search is to stop."""

    def __init__(self, study: optuna.Study, trials: int, budget: float | None, reporter: Reporter) -> None:
        self.study, self.trials, self.reporter = study, trials, reporter
        self.started = time.monotonic()
        self.end = float("inf") if budget is None else self.started + budget
        self.seen = {trial.number for trial in ended_trials(study)}
        self.before = len(self.seen)

    def __call__(self) -> bool:
        ended = ended_trials(self.study)
        complete = [trial.value for trial in ended if trial.value is not None and trial.state.name == "COMPLETE"]
        best = (max if self.study.direction.name == "MAXIMIZE" else min)(complete, default=None)
        for trial in ended:
            if trial.number not in self.seen:
                self.seen.add(trial.number)
                self._say(trial, best)
        return self.reporter.should_stop() or time.monotonic() > self.end

    def _say(self, trial: optuna.trial.FrozenTrial, best: float | None) -> None:
        done = len(self.seen)
        rate = (time.monotonic() - self.started) / (done - self.before)
        left = format_seconds(rate * max(0, self.trials - done))
        score = f"{trial.value:.4f}" if trial.state.name == "COMPLETE" else "given up"
        words = "" if best is None else f", best {best:.4f}"
        self.reporter.say(f"[{done}/{self.trials}] trial {trial.number}: {score}{words}; about {left} left")


def _best(study: optuna.Study, request: RunRequest, journal: Path, stopped: bool) -> Best:
    ended = ended_trials(study)
    if not any(trial.state.name == "COMPLETE" for trial in ended):
        reasons = [trial.user_attrs["reason"] for trial in ended if "reason" in trial.user_attrs]
        if reasons:
            raise InvalidParameter(
                f"All {len(ended)} trials of the study '{journal}' were given up, the last one thus: {reasons[-1]} "
                f"Fix other settings, with another --study."
            )
        raise OutOfResources(f"No trial of the study '{journal}' has come to its end yet. Let it run longer.")
    settings = request.asked_settings() | study.best_params
    resolved = request.resolve_settings()
    basis = {"basis": resolved["basis"]} if "basis" in resolved else {}
    return Best(study.best_value, basis | settings, len(ended), stopped)
