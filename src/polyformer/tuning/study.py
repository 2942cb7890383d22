"""A study: trials of settings, kept in a journal file from which it goes on, worked on by several processes.

TPE draws the trials, the median rule ends those that fall behind, and the validation score alone decides.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyformer.errors import InvalidParameter, MissingDependency, OutOfResources, PolyformerError, TrainingInterrupted
from polyformer.files import reporting_io_errors
from polyformer.training.loop import EpochRecord, TrainingDiverged
from polyformer.training.run import RunRequest, execute_run

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Event

    import optuna

__all__ = ["Best", "Finished", "tune"]

_POLL_SECONDS = 0.5
_STARTUP_TRIALS = 10
_WARMUP_EPOCHS = 20
_EPOCHS_PER_REPORT = 5


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


def tune(
    request: RunRequest,
    space: dict[str, Sequence[Any]],
    journal: Path,
    *,
    trials: int,
    workers: int = 1,
    observe: Callable[[Finished], None] = lambda finished: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Best:
    """Go on with the study in ``journal``, or start it, until it has so many trials.

    Args:
        request: data, model, split, seed and the settings that are fixed.
        space: the settings that are searched.
        trials: finished ones in all, those of earlier calls included.
        workers: processes at a time, each on one thread.
        observe: is told of every trial that ends.
        should_stop: asked now and then; True ends the search, and the trials under way are tried again next time.
    """
    study = _open(journal)
    _claim(study, request, space, journal)
    context = multiprocessing.get_context("spawn")
    stop, failures = context.Event(), context.SimpleQueue()
    arguments = (request, space, journal, trials, stop, failures)
    seen = {trial.number for trial in _ended(study)}
    count = 0 if len(seen) >= trials else min(workers, trials - len(seen))
    processes = [context.Process(target=_work, args=(*arguments, number), daemon=True) for number in range(count)]
    try:
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes):
            if should_stop():
                stop.set()
            time.sleep(_POLL_SECONDS)
            _tell(study, seen, observe)
        _tell(study, seen, observe)
    finally:
        for process in processes:
            process.terminate()
            process.join()
    if not failures.empty():
        raise failures.get()
    return _best(study, request, journal, stop.is_set())


def _open(journal: Path, seed: int = 0) -> optuna.Study:
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    except ImportError:
        raise MissingDependency("Optuna is not installed. Install it with: pip install 'polyformer[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with reporting_io_errors("a study", journal):
        journal.parent.mkdir(parents=True, exist_ok=True)
        backend = JournalFileBackend(str(journal), JournalFileOpenLock(str(journal)))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name="polyformer",
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS),
            pruner=optuna.pruners.MedianPruner(_STARTUP_TRIALS, _WARMUP_EPOCHS, _EPOCHS_PER_REPORT),
        )


def _claim(study: optuna.Study, request: RunRequest, space: dict[str, Sequence[Any]], journal: Path) -> None:
    """Write down what the study is about; refuse to go on with one about something else."""
    about = {name: getattr(request, name) for name in ("data", "model", "protocol", "split", "seed")}
    about["settings"] = request.asked_settings()
    about["space"] = {name: list(choices) for name, choices in space.items()}
    before = study.user_attrs.get("about")
    if before is None:
        study.set_user_attr("about", about)
        return
    for name, value in about.items():
        if before[name] != value:
            raise InvalidParameter(
                f"The study '{journal}' was started with {name}={before[name]}. Got {value}. Take another --study."
            )


def _ended(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _tell(study: optuna.Study, seen: set[int], observe: Callable[[Finished], None]) -> None:
    ended = _ended(study)
    complete = [trial.value for trial in ended if trial.value is not None and trial.state.name == "COMPLETE"]
    for trial in ended:
        if trial.number not in seen:
            seen.add(trial.number)
            score = trial.value if trial.state.name == "COMPLETE" else None
            observe(Finished(trial.number, score, trial.params, max(complete, default=None), len(seen)))


def _best(study: optuna.Study, request: RunRequest, journal: Path, stopped: bool) -> Best:
    ended = _ended(study)
    if not any(trial.state.name == "COMPLETE" for trial in ended):
        raise OutOfResources(f"No trial of the study '{journal}' has come to its end yet. Let it run longer.")
    settings = request.asked_settings() | study.best_params
    resolved = request.resolve_settings()
    basis = {"basis": resolved["basis"]} if "basis" in resolved else {}
    return Best(study.best_value, basis | settings, len(ended), stopped)


def _work(
    request: RunRequest,
    space: dict[str, Sequence[Any]],
    journal: Path,
    trials: int,
    stop: Event,
    failures: SimpleQueue[PolyformerError],
    number: int,
) -> None:
    """One process: trial after trial on one thread."""
    import torch
    from optuna.study import MaxTrialsCallback
    from optuna.trial import TrialState

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's, which sets ``stop``
    torch.set_num_threads(1)
    study = _open(journal, request.seed + len(_ended(_open(journal))) + number)
    enough = MaxTrialsCallback(trials, states=(TrialState.COMPLETE, TrialState.PRUNED))
    try:
        study.optimize(lambda trial: _score(study, trial, request, space, stop), callbacks=[enough])
    except TrainingInterrupted:
        return
    except PolyformerError as error:
        failures.put(error)


def _score(
    study: optuna.Study,
    trial: optuna.Trial,
    request: RunRequest,
    space: dict[str, Sequence[Any]],
    stop: Event,
) -> float:
    """Train with a trial's settings; the best validation score. The test score is not looked at."""
    from optuna import TrialPruned

    chosen = {name: trial.suggest_categorical(name, choices) for name, choices in space.items()}

    def observe(record: EpochRecord, best_epoch: int, best_score: float) -> None:
        if record.epoch % _EPOCHS_PER_REPORT == 0:
            trial.report(record.val, record.epoch)
            if trial.should_prune():
                raise TrialPruned

    settings = request.asked_settings() | chosen
    with tempfile.TemporaryDirectory(prefix="polyformer-tune-") as folder:
        try:
            result = execute_run(
                replace(request, preset=None, settings=settings),
                Path(folder) / "run",
                observers=[observe],
                should_stop=stop.is_set,
            )
        except TrainingInterrupted:
            study.enqueue_trial(chosen)  # to be tried again when the study goes on
            raise
        except (OutOfResources, TrainingDiverged) as error:
            trial.set_user_attr("reason", str(error))
            raise TrialPruned from None
    if result["val"] is None:
        raise TrialPruned
    trial.set_user_attr("best_epoch", result["best_epoch"])
    trial.set_user_attr("seconds", result["seconds"])
    return float(result["val"])
