"""A study: trials of settings, kept in a journal file from which it goes on, worked on by several processes.

They are processes of this machine, or tasks on a Ray cluster whose nodes all see the journal.

The first trials are settings that are known to be good; then TPE draws them, the median rule ends those that fall
behind, and the validation score alone decides.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyformer.cluster import capacity, connected, run_tasks
from polyformer.errors import (
    DataNotFound,
    FileCorrupt,
    InvalidParameter,
    MissingDependency,
    OutOfResources,
    PolyformerError,
    TrainingDiverged,
    TrainingInterrupted,
    WorkerLost,
    WriteFailed,
)
from polyformer.files import reporting_io_errors
from polyformer.machine import num_cores, usable_memory
from polyformer.training.loop import EpochRecord, Observer
from polyformer.training.run import RunRequest, execute_run
from polyformer.tuning.space import first_guesses
from polyformer.tuning.trials import ended_trials, held, next_trial, take_back

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Event

    import optuna

__all__ = ["Best", "Finished", "tune"]

_POLL_SECONDS = 0.5
_STARTUP_TRIALS = 10
_WARMUP_EPOCHS = 20
_EPOCHS_PER_REPORT = 5
_LONGEST_FIRST_LINE = 10_000


@dataclass(frozen=True)
class Finished:
    """A trial that has ended: its validation score, None if it was given up, and the best so far."""

    number: int
    score: float | None
    settings: dict[str, Any]
    best: float | None
    done: int


@dataclass(frozen=True)
class Best:
    """What a study has found: the validation score and every setting of the best trial that differs from a default."""

    score: float
    settings: dict[str, Any]
    trials: int
    stopped: bool


@dataclass(frozen=True)
class _Search:
    """What all workers on a study have in common."""

    request: RunRequest
    space: dict[str, Sequence[Any]]
    journal: Path
    trials: int
    splits: int = 1
    larger_is_better: bool = True

    def within(self, memory: int) -> _Search:
        """The same with so much memory for each worker, unless the request names another."""
        return replace(self, request=replace(self.request, memory=self.request.memory or memory))


def tune(
    request: RunRequest,
    space: dict[str, Sequence[Any]],
    journal: Path,
    *,
    trials: int,
    splits: int = 1,
    larger_is_better: bool = True,
    workers: int | None = None,
    observe: Callable[[Finished], None] = lambda finished: None,
    should_stop: Callable[[], bool] = lambda: False,
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
        observe: is told of every trial that ends.
        should_stop: asked now and then; True ends the search, and the trials under way are tried again next time.
        ray: have the processes be tasks on a Ray cluster.
        address: address of the Ray cluster; by default a cluster is started on this machine.
    """
    search = _Search(request, space, journal.absolute(), trials, splits, larger_is_better)
    study = _open(journal, larger_is_better=larger_is_better)
    with held(journal):
        if _claim(study, search):
            for guess in first_guesses(request, space):
                study.enqueue_trial(guess)
        take_back(study, search.journal)
        seen = {trial.number for trial in ended_trials(study)}

        def watch() -> None:
            _tell(study, seen, observe)

        stopped, lost, left = False, "", trials - len(seen)
        if left > 0 and ray:
            with connected(address, workers):
                count, memory = capacity()
                count = min(workers or count, left)
                stopped = _on_ray(search.within(memory), count, should_stop, watch)
        elif left > 0:
            count = min(workers or num_cores(), left)
            search = search.within(usable_memory() // count)
            stopped, lost = _in_processes(study, search, count, should_stop, watch)
        watch()
    if lost and not stopped and len(seen) < trials:
        raise WorkerLost(f"{lost} What has finished is in '{journal}': the same command goes on, with fewer --workers.")
    return _best(study, request, journal, stopped)


def _in_processes(
    study: optuna.Study, search: _Search, count: int, should_stop: Callable[[], bool], watch: Callable[[], None]
) -> tuple[bool, str]:
    """Work on a study in processes of this machine; whether it was stopped, and a sentence if some were lost."""
    context = multiprocessing.get_context("spawn")
    stop, failures = context.Event(), context.SimpleQueue()
    processes = [
        context.Process(target=_process, args=(search, number, stop, failures), daemon=True) for number in range(count)
    ]
    try:
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes):
            if should_stop():
                stop.set()
            time.sleep(_POLL_SECONDS)
            watch()
            for number, process in enumerate(processes):
                if process.exitcode:
                    take_back(study, search.journal, number)  # for those that are left
        lost = [process.exitcode for process in processes if process.exitcode]
    finally:
        for process in processes:
            process.terminate()
            process.join()
    if not failures.empty():
        raise failures.get()
    if not lost:
        return stop.is_set(), ""
    how = f"signal {-lost[0]}; perhaps memory ran out" if lost[0] < 0 else f"code {lost[0]}"
    return stop.is_set(), f"{len(lost)} of {count} workers ended early, by {how}."


def _process(search: _Search, number: int, stop: Event, failures: SimpleQueue[PolyformerError]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's, which sets ``stop``
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _work(search, number, stop.is_set)
    except PolyformerError as error:
        failures.put(error)


def _end_with_parent() -> None:
    """End at once when the first process was killed: the next command takes the study for its own."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _on_ray(search: _Search, count: int, should_stop: Callable[[], bool], watch: Callable[[], None]) -> bool:
    """Work on a study in tasks on a Ray cluster; whether it was stopped. A file beside the journal tells them to."""
    stop = search.journal.with_name(search.journal.name + ".stop")
    stop.unlink(missing_ok=True)

    def meanwhile() -> None:
        if should_stop():
            stop.touch()
        watch()

    tasks = run_tasks(partial(_task, search, stop), range(count), at_once=count, meanwhile=meanwhile)
    try:
        with contextlib.closing(tasks) as finished:
            for _ in finished:
                pass
        return stop.exists()
    finally:
        stop.unlink(missing_ok=True)


def _task(search: _Search, stop: Path, number: int) -> None:
    _work(search, number, stop.exists)


def _open(journal: Path, seed: int = 0, larger_is_better: bool = True) -> optuna.Study:
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    except ImportError:
        raise MissingDependency("Optuna is not installed. Install it with: pip install 'polyformer[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    _check_journal(journal)
    with reporting_io_errors("a study", journal):
        journal.parent.mkdir(parents=True, exist_ok=True)
        backend = JournalFileBackend(str(journal), JournalFileOpenLock(str(journal)))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name="polyformer",
            direction="maximize" if larger_is_better else "minimize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS),
            pruner=optuna.pruners.MedianPruner(_STARTUP_TRIALS, _WARMUP_EPOCHS, _EPOCHS_PER_REPORT),
        )


def _check_journal(journal: Path) -> None:
    """Refuse to append to a file that is something else."""
    try:
        with journal.open("rb") as file:
            first = file.readline(_LONGEST_FIRST_LINE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataNotFound(f"The study '{journal}' cannot be read: {error.strerror}. Take another --study.") from None
    with contextlib.suppress(ValueError):
        if not first or "op_code" in json.loads(first):
            return
    raise FileCorrupt(f"'{journal}' is not the file of a study. Take another --study.")


def _claim(study: optuna.Study, search: _Search) -> bool:
    """Write down what the study is about, if it is new; refuse to go on with one about something else."""
    about = {name: getattr(search.request, name) for name in ("data", "model", "protocol", "split", "seed")}
    about["settings"] = search.request.asked_settings()
    about["space"] = {name: list(choices) for name, choices in search.space.items()}
    about["splits"] = search.splits
    before = study.user_attrs.get("about")
    if before is None:
        study.set_user_attr("about", about)
        return True
    before = {"splits": 1, **before}  # of studies from before there could be more
    for name, value in about.items():
        if before[name] != value:
            raise InvalidParameter(
                f"The study '{search.journal}' was started with {name}={before[name]}. Got {value}. "
                f"Take another --study."
            )
    return False


def _tell(study: optuna.Study, seen: set[int], observe: Callable[[Finished], None]) -> None:
    ended = ended_trials(study)
    complete = [trial.value for trial in ended if trial.value is not None and trial.state.name == "COMPLETE"]
    for trial in ended:
        if trial.number not in seen:
            seen.add(trial.number)
            score = trial.value if trial.state.name == "COMPLETE" else None
            best = (max if study.direction.name == "MAXIMIZE" else min)(complete, default=None)
            observe(Finished(trial.number, score, trial.params, best, len(seen)))


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


def _work(search: _Search, number: int, stopped: Callable[[], bool]) -> None:
    """One worker: trial after trial on one thread, until there are enough or it is told to stop."""
    import torch
    from optuna import TrialPruned
    from optuna.trial import TrialState

    torch.set_num_threads(1)
    study = _open(search.journal, search.request.seed + len(ended_trials(_open(search.journal))) + number)
    take_back(study, search.journal, number)  # what it was at before Ray started it again
    while not stopped() and (trial := next_trial(study, search.journal, search.trials, number)) is not None:
        try:
            study.tell(trial, _score(trial, search, stopped))
        except TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
        except TrainingInterrupted:
            take_back(study, search.journal, number)
            return
        except KeyboardInterrupt:  # so Ray ends a task
            take_back(study, search.journal, number)
            raise
        except BaseException:
            study.tell(trial, state=TrialState.FAIL)
            raise


def _score(trial: optuna.Trial, search: _Search, stopped: Callable[[], bool]) -> float:
    """Train with a trial's settings; the mean of the best validation scores. Test scores are not looked at."""
    request = search.request
    suggested = {name: trial.suggest_categorical(name, choices) for name, choices in search.space.items()}
    settings = request.asked_settings() | suggested
    results = []
    for split in range(request.split, request.split + search.splits):
        split_request = replace(request, preset=None, settings=settings, split=split)
        # One split is compared with the same of other trials: a harder one that follows is no reason to give up.
        observers: list[Observer] = [partial(_give_up_behind, trial)] if split == request.split else []
        results.append(_train(trial, split_request, observers, stopped))
    trial.set_user_attr("best_epoch", [result["best_epoch"] for result in results])
    trial.set_user_attr("seconds", [result["seconds"] for result in results])
    return statistics.fmean(result["val"] for result in results)


def _give_up_behind(trial: optuna.Trial, record: EpochRecord, best_epoch: int, best_score: float) -> None:
    from optuna import TrialPruned

    if record.epoch % _EPOCHS_PER_REPORT == 0:
        trial.report(record.val, record.epoch)
        if trial.should_prune():
            raise TrialPruned


def _train(
    trial: optuna.Trial, request: RunRequest, observers: list[Observer], stopped: Callable[[], bool]
) -> dict[str, Any]:
    """The result of one run; settings that do not go together end the trial."""
    from optuna import TrialPruned

    with tempfile.TemporaryDirectory(prefix="polyformer-tune-") as folder:
        try:
            result = execute_run(
                request,
                Path(folder) / "run",
                observers=observers,
                should_stop=stopped,
                keep_freed_memory=True,  # a process that was started to train
            )
        except WriteFailed:
            raise
        except (InvalidParameter, OutOfResources, TrainingDiverged) as error:
            trial.set_user_attr("reason", str(error))
            raise TrialPruned from None
    if result["val"] is None:
        trial.set_user_attr("reason", "Its validation score is not a number.")
        raise TrialPruned
    return result
