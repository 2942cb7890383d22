"""Trials of a study that are under way or ended, and who may start one: the workers of one command, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from polyformer.errors import OutputBusy
from polyformer.files import locked, reporting_io_errors

if TYPE_CHECKING:
    import optuna

__all__ = ["ended_trials", "held", "next_trial", "running_trials", "take_back"]

_WORKER = "worker"
_PATIENCE_SECONDS = 60.0


def ended_trials(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials that were finished or given up early: all that a study has learned from."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def running_trials(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials that a worker runs, or ran when the worker was killed."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))


@contextmanager
def held(journal: Path) -> Iterator[None]:
    """Keep a second command from working on the same study; released when this process ends, however it ends."""
    busy = OutputBusy(f"Another process is working on the study '{journal}'. Wait for it, or take another.")
    with ExitStack() as stack:
        with reporting_io_errors("a study", journal):
            # Optuna's own lock has the suffix .lock
            stack.enter_context(locked(journal.with_name(f".{journal.name}.busy"), busy))
        yield


@contextmanager
def _turn(journal: Path) -> Iterator[None]:
    """Keep other workers from starting a trial meanwhile, where files can be locked."""
    with locked(journal.with_name(f".{journal.name}.turn"), None, _PATIENCE_SECONDS):
        yield


def next_trial(study: optuna.Study, journal: Path, trials: int, worker: int) -> optuna.Trial | None:
    """The next trial of a worker; None if ended and running trials together reach the number ``trials``."""
    with _turn(journal):
        if len(ended_trials(study)) + len(running_trials(study)) >= trials:
            return None
        trial = study.ask()
        trial.set_user_attr(_WORKER, worker)
        return trial


def take_back(study: optuna.Study, journal: Path, worker: int | None = None) -> None:
    """Mark the running trials of a worker that has died as failed, and queue their settings again.

    Args:
        worker: number of the worker that died; None for all workers, allowed only while no worker runs.
    """
    from optuna.trial import TrialState

    # next_trial marks its trial inside the same lock, so a trial without a worker belongs to a worker that has died.
    with _turn(journal):
        for trial in running_trials(study):
            if worker is None or trial.user_attrs.get(_WORKER, worker) == worker:
                settings = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
                if settings:
                    study.enqueue_trial(settings)
                study.tell(trial.number, state=TrialState.FAIL)
