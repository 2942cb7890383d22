"""Records: one small JSON file for every finished run, models that are kept, and runs that are not finished."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyformer.errors import FileCorrupt, OutputBusy
from polyformer.experiments.plan import Job
from polyformer.files import read_json, reporting_io_errors, try_lock, write_json
from polyformer.training.run_directory import RunDirectory

__all__ = ["Records"]

_LOCAL = ("card", "data_root", "format", "memory", "tokens")
"""What a run's configuration holds that says nothing about its result, or only about this machine."""

_RESULT = {"metric", "test", "seconds", "preparation_seconds", "peak_memory_bytes"}


class Records:
    """A folder with ``<plan>/<run>.json`` for every finished run, to be kept; ``.unfinished/`` and ``.models/`` beside.

    The run directories in ``.models/`` are those of plans that keep their models.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, job: Job) -> Path:
        """Where the record of a run is once it has finished."""
        return self.folder / job.series.plan / f"{job.key}.json"

    def run_directory(self, job: Job) -> Path:
        """Where a run works until it has finished."""
        return self.folder / ".unfinished" / job.series.plan / job.key

    def model(self, job: Job) -> Path | None:
        """The run directory with the model of a finished run; None if it is not there."""
        path = self._model_directory(job)
        return path if path.is_dir() else None

    def _model_directory(self, job: Job) -> Path:
        return self.folder / ".models" / job.series.plan / job.key

    def is_finished(self, job: Job) -> bool:
        """Whether nothing is left to do: there is a record and, where models are kept, a model."""
        return self.path(job).exists() and (not job.series.keep_model or self.model(job) is not None)

    def is_busy(self, job: Job) -> bool:
        """Whether a process is at this run, such as one that a runner left when it was killed."""
        try:
            with RunDirectory(self.run_directory(job)).locked():
                return False
        except OutputBusy:
            return True
        except OSError:  # there is no directory yet
            return False

    def read(self, job: Job) -> dict[str, Any] | None:
        """The record of a run, None if it has not finished."""
        path = self.path(job)
        if not path.exists():
            return None
        record = read_json(path, "a folder of records")
        result = record.get("result") if isinstance(record, dict) else None
        if not isinstance(result, dict) or not set(result) >= _RESULT:
            raise FileCorrupt(f"'{path}' is not the record of a run. Remove it to run that again.")
        return record

    def read_all(self, jobs: Iterable[Job]) -> list[tuple[Job, dict[str, Any]]]:
        """The jobs that have a record, each with its record."""
        read_records = [(job, self.read(job)) for job in jobs]
        return [(job, record) for job, record in read_records if record is not None]

    def finish(self, job: Job) -> dict[str, Any]:
        """Turn the directory of a run that has come to its end into its record."""
        run = RunDirectory.open(self.run_directory(job))
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
            write_json(self.path(job), record)
            if job.series.keep_model:
                self._keep(run, self._model_directory(job))
            else:
                shutil.rmtree(run.path)
        return record

    @staticmethod
    def _keep(run: RunDirectory, place: Path) -> None:
        """Move a run directory, without what only training needs."""
        shutil.rmtree(run.checkpoint.parent, ignore_errors=True)
        shutil.rmtree(run.tokens, ignore_errors=True)
        shutil.rmtree(place, ignore_errors=True)  # of a record that was removed
        place.parent.mkdir(parents=True, exist_ok=True)
        run.path.rename(place)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from working through the same runs."""
        with reporting_io_errors("records", self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / ".lock").open("wb")
        with file:
            if not try_lock(file):
                raise OutputBusy(f"Another process is making the records in '{self.folder}'. Wait for it.")
            yield
