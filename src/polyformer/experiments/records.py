"""Records: one small JSON file for every finished run, models that are kept, and runs that are not finished."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from polyformer.errors import FileCorrupt, OutputBusy
from polyformer.experiments.plan import Job
from polyformer.files import locked, read_json, reporting_io_errors, write_json
from polyformer.files.run_schemas import RECORD
from polyformer.runs.run import Run

__all__ = ["Records"]

_LOCAL = ("card", "data_root", "format", "memory", "tokens")
"""Entries of a run's configuration that do not change its result, or depend on this machine."""


class Records:
    """A folder with ``<plan>/<run>.json`` for every finished run, and the folders ``.unfinished/`` and ``.models/``.

    ``.models/`` holds the run directories of plans that keep their models.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, job: Job) -> Path:
        """The path of the record of a finished run."""
        return self.folder / job.series.plan / f"{job.key}.json"

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
        return self.path(job).exists() and (not job.series.keep_model or self.model(job) is not None)

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
        path = self.path(job)
        if not path.exists():
            return None
        try:
            record: dict[str, Any] = read_json(path, RECORD)
        except FileCorrupt as error:
            raise FileCorrupt(f"'{path}' is not the record of a run. Remove it to run that again. ({error})") from None
        return record

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
            write_json(self.path(job), record, RECORD)
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
