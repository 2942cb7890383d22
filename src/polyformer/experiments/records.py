"""Records: one line of JSON for every finished run, models that are kept, and runs that are not finished."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from polyformer.errors import OutputBusy
from polyformer.experiments.plan import Job
from polyformer.experiments.plan_records import PlanRecords
from polyformer.files import locked, reporting_io_errors
from polyformer.runs.run import Run

__all__ = ["Records"]

_LOCAL = ("card", "data_root", "format", "memory", "tokens")
"""Entries of a run's configuration that do not change its result, or depend on this machine."""


class Records:
    """A folder with ``<plan>.jsonl``, a line for every finished run, and the folders ``.unfinished/`` and ``.models/``.

    ``.models/`` holds the run directories of plans that keep their models. Earlier versions wrote a file
    ``<plan>/<run>.json`` for every finished run; such files are read too, and :meth:`fold` makes lines of them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._plans: dict[str, PlanRecords] = {}

    def of_plan(self, plan: str) -> PlanRecords:
        """The records of a plan, by the names of its runs."""
        return self._plans.setdefault(plan, PlanRecords(self.folder, plan))

    def plans(self) -> list[str]:
        """The names of the plans that have records."""
        lines = {path.stem for path in self.folder.glob("*.jsonl")}
        return sorted(lines | {path.parent.name for path in self.folder.glob("[!.]*/*.json")})

    def run_directory(self, job: Job) -> Path:
        """The run directory of a run until it has finished."""
        return self.folder / ".unfinished" / job.series.plan / job.key

    def model(self, job: Job) -> Path | None:
        """The run directory with the model of a finished run; None if no model was kept."""
        path = self._model_directory(job)
        return path if path.is_dir() else None

    def _model_directory(self, job: Job) -> Path:
        return self.folder / ".models" / job.series.plan / job.key

    def is_finished(self, job: Job) -> bool:
        """Whether the run has a record and, if the plan keeps models, a model."""
        return job.key in self.of_plan(job.series.plan).read() and (
            not job.series.keep_model or self.model(job) is not None
        )

    def is_busy(self, job: Job) -> bool:
        """Whether a process works on this run, for example one that a killed runner left."""
        try:
            with Run(self.run_directory(job)).locked():
                return False
        except OutputBusy:
            return True
        except OSError:  # there is no directory yet
            return False

    def read(self, job: Job) -> dict[str, Any] | None:
        """The record of a run; None if the run has not finished."""
        return self.of_plan(job.series.plan).read().get(job.key)

    def read_all(self, jobs: Iterable[Job]) -> list[tuple[Job, dict[str, Any]]]:
        """The jobs that have a record, each with its record."""
        read_records = [(job, self.read(job)) for job in jobs]
        return [(job, record) for job, record in read_records if record is not None]

    def finish(self, job: Job) -> dict[str, Any]:
        """Turn the run directory of a run that has ended into its record."""
        run = Run.open(self.run_directory(job))
        config = {name: value for name, value in run.config.items() if name not in _LOCAL}
        series = job.series
        record = {
            "format": 1,
            "plan": series.plan,
            "model": series.model,
            "basis": series.basis,
            "dataset": series.dataset,
            "config": config,
            "result": run.result,
        }
        with reporting_io_errors("a record", self.folder):
            self.of_plan(series.plan).append(job.key, record)
            if job.series.keep_model:
                self._keep(run, self._model_directory(job))
            else:
                shutil.rmtree(run.path)
        return record

    @staticmethod
    def _keep(run: Run, place: Path) -> None:
        """Move a run directory, without the files that only training needs."""
        shutil.rmtree(run.checkpoint.parent, ignore_errors=True)
        shutil.rmtree(run.tokens, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)  # a model whose record was removed
        place.parent.mkdir(parents=True, exist_ok=True)
        run.path.rename(place)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from working through the same runs."""
        busy = OutputBusy(f"Another process is making the records in '{self.folder}'. Wait for it.")
        with ExitStack() as stack:
            with reporting_io_errors("records", self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.folder / ".lock", busy))
            yield

    def fold(self, other: Path | None = None) -> int:
        """Make one file of lines for each plan, sorted by name, from lines and single files; returns how many are new.

        Args:
            other: a folder of records to gather too; its files stay. Its record of a run replaces ours.
        """
        with self.locked():
            gathered = 0
            for plan in sorted({*self.plans(), *(Records(other).plans() if other is not None else ())}):
                more = {} if other is None else PlanRecords(other, plan).read()
                gathered += self.of_plan(plan).fold(more)
            return gathered
