"""One trial of a study: a training with the settings that Optuna suggests, given up where it falls behind."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyformer.errors import InvalidParameter, OutOfResources, TrainingDiverged, TrainingInterrupted, WriteFailed
from polyformer.reporter import EpochRecord, Reporter
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.tuning.journal import EPOCHS_PER_REPORT, Search, open_study
from polyformer.tuning.trials import ended_trials, next_trial, take_back

if TYPE_CHECKING:
    import optuna

__all__ = ["trial_score", "work"]


def work(search: Search, number: int, stopped: Callable[[], bool]) -> None:
    """One worker: trial after trial on one thread, until there are enough or it is told to stop."""
    import torch
    from optuna import TrialPruned
    from optuna.trial import TrialState

    torch.set_num_threads(1)
    study = open_study(search.journal, search.request.seed + len(ended_trials(open_study(search.journal))) + number)
    take_back(study, search.journal, number)  # the trial on which this worker was before Ray started it again
    while not stopped() and (trial := next_trial(study, search.journal, search.trials, number)) is not None:
        try:
            study.tell(trial, trial_score(trial, search, stopped))
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


def trial_score(trial: optuna.Trial, search: Search, stopped: Callable[[], bool]) -> float:
    """Train with a trial's settings; the mean of the best validation scores. Test scores are not looked at."""
    request = search.request
    suggested = {name: trial.suggest_categorical(name, choices) for name, choices in search.space.items()}
    settings = request.asked_settings() | suggested
    results = []
    for split in range(request.split, request.split + search.splits):
        split_request = replace(request, preset=None, settings=settings, split=split)
        # One split is compared with the same of other trials: a harder one that follows is no reason to give up.
        reporter = _TrialReporter(trial if split == request.split else None, stopped)
        results.append(_train(trial, split_request, reporter))
    trial.set_user_attr("best_epoch", [result["best_epoch"] for result in results])
    trial.set_user_attr("seconds", [result["seconds"] for result in results])
    return statistics.fmean(result["val"] for result in results)


class _TrialReporter(Reporter):
    """Ends a trial that falls behind the others, and ends every training when the whole search is to end.

    Args:
        trial: the trial that is compared with others; None for a training that is not compared.
    """

    def __init__(self, trial: optuna.Trial | None, stopped: Callable[[], bool]) -> None:
        self._trial, self._stopped = trial, stopped

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        from optuna import TrialPruned

        if self._trial is not None and record.epoch % EPOCHS_PER_REPORT == 0:
            self._trial.report(record.val, record.epoch)
            if self._trial.should_prune():
                raise TrialPruned

    def should_stop(self) -> bool:
        return self._stopped()


def _train(trial: optuna.Trial, request: RunRequest, reporter: Reporter) -> dict[str, Any]:
    """The result of one run; settings that do not go together end the trial."""
    from optuna import TrialPruned

    with tempfile.TemporaryDirectory(prefix="polyformer-tune-") as folder:
        try:
            # This process was started to train: it may keep freed memory.
            result = execute_run(request, Path(folder) / "run", reporter=reporter, keep_freed_memory=True)
        except WriteFailed:
            raise
        except (InvalidParameter, OutOfResources, TrainingDiverged) as error:
            trial.set_user_attr("reason", str(error))
            raise TrialPruned from None
    if result["val"] is None:
        trial.set_user_attr("reason", "Its validation score is not a number.")
        raise TrialPruned
    return result
