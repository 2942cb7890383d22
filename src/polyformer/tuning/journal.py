"""The journal of a study: the file that keeps every trial, and what the study is about."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter, MissingDependency
from polyformer.files import open_regular, parse_json, reading, reporting_io_errors
from polyformer.runs.request import RunRequest
from polyformer.tuning.journal_lock import JournalLock

if TYPE_CHECKING:
    import optuna

__all__ = ["EPOCHS_PER_REPORT", "Search", "claim", "open_study"]

EPOCHS_PER_REPORT = 5
"""A trial is compared with others after every so many epochs."""

_STARTUP_TRIALS = 10
_WARMUP_EPOCHS = 20
_LONGEST_FIRST_LINE = 10_000


@dataclass(frozen=True)
class Search:
    """What all workers on a study have in common."""

    request: RunRequest
    space: dict[str, Sequence[Any]]
    journal: Path
    trials: int
    splits: int = 1
    larger_is_better: bool = True

    def within(self, memory: int) -> Search:
        """The same with so much memory for each worker, unless the request names another."""
        return replace(self, request=replace(self.request, memory=self.request.memory or memory))


def open_study(journal: Path, seed: int = 0, larger_is_better: bool = True) -> optuna.Study:
    """The study in ``journal``, new or begun earlier."""
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise MissingDependency("Optuna is not installed. Install it with: pip install 'polyformer[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    _check_journal(journal)
    with reading(journal, "Take another --study."), reporting_io_errors("a study", journal):
        journal.parent.mkdir(parents=True, exist_ok=True)
        backend = JournalFileBackend(str(journal), cast(Any, JournalLock(journal)))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name="polyformer",
            direction="maximize" if larger_is_better else "minimize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_STARTUP_TRIALS),
            pruner=optuna.pruners.MedianPruner(_STARTUP_TRIALS, _WARMUP_EPOCHS, EPOCHS_PER_REPORT),
        )


def _check_journal(journal: Path) -> None:
    """Refuse to append to a file that is something else."""
    try:
        with open_regular(journal) as file:
            first = file.readline(_LONGEST_FIRST_LINE)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataNotFound(f"The study '{journal}' cannot be read: {reason}. Take another --study.") from None
    with contextlib.suppress(FileCorrupt):
        if not first or "op_code" in parse_json(first, journal):
            return
    raise FileCorrupt(f"'{journal}' is not the file of a study. Take another --study.")


def claim(study: optuna.Study, search: Search) -> bool:
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
