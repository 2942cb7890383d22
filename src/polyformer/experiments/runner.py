"""The runner: makes the runs that have no record yet, the cheapest first, each in a process of its own.

A run is ``polyformer train`` on one thread: several such runs use the cores better than one run on all cores. Whatever
stops the runner, finished runs have their records and the others go on from their checkpoints.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyformer.durations import format_seconds
from polyformer.experiments.costs import Costs
from polyformer.experiments.plan import Job
from polyformer.experiments.records import Records
from polyformer.machine import usable_memory
from polyformer.reporter import SILENT, Reporter
from polyformer.system import CHILD_OPTIONS, interrupt
from polyformer.user_cache import PRECOMPUTED_VARIABLE

__all__ = ["JobResults", "run_jobs"]

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 600.0


@dataclass
class JobResults:
    """The results of a call of :func:`run_jobs`.

    Attributes:
        records: the jobs that have a record, with their records.
        failures: the jobs that failed, with the reason.
        busy: jobs on which a process of a killed runner still works.
        stopped: whether some jobs were left for another call.
    """

    records: list[tuple[Job, dict[str, Any]]] = field(default_factory=list)
    failures: list[tuple[Job, str]] = field(default_factory=list)
    busy: list[Job] = field(default_factory=list)
    stopped: bool = False


@dataclass(frozen=True)
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    started: float


class _Workers:
    """Processes that train, each with one thread."""

    def __init__(self, records: Records, count: int, data_root: Path | None) -> None:
        self.records, self.count, self.data_root = records, count, data_root
        self.running: list[_Running] = []

    def start(self, job: Job) -> None:
        out = self.records.run_directory(job)
        out.parent.mkdir(parents=True, exist_ok=True)
        log = out.with_name(f"{out.name}.log")
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        if job.series.from_scratch:
            shutil.rmtree(_scratch(out), ignore_errors=True)
            environment[PRECOMPUTED_VARIABLE] = str(_scratch(out))
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "polyformer", "train", *self._arguments(job, out)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                **CHILD_OPTIONS,  # Ctrl-C reaches only the runner, which passes it on once
            )
        self.running.append(_Running(job, process, log, time.monotonic()))

    def _arguments(self, job: Job, out: Path) -> list[str]:
        if out.exists():
            return ["--resume", "--out", str(out), "--json", "--no-report"]
        request = job.request
        values = {
            "model": request.model,
            "preset": request.preset,
            "protocol": request.protocol,
            "split": request.split,
            "seed": request.seed,
            "memory": usable_memory() // self.count,
            "out": out,
            "data-root": self.data_root,
        }
        options = [f"--{name}={value}" for name, value in values.items() if value is not None]
        settings = [f"--set={name}={str(value).lower()}" for name, value in (request.settings or {}).items()]
        return [request.data, *options, *settings, "--json", "--no-report"]

    def finished(self) -> Iterator[_Running]:
        """The jobs that have ended since the last call."""
        ended = [entry for entry in self.running if entry.process.poll() is not None]
        for entry in ended:
            shutil.rmtree(_scratch(self.records.run_directory(entry.job)), ignore_errors=True)
        self.running = [entry for entry in self.running if entry not in ended]
        yield from ended

    def stop(self) -> None:
        """Ask all processes to save and end, and wait for them with one deadline for all."""
        for entry in self.running:
            interrupt(entry.process)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for entry in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                entry.process.wait(max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """End all processes at once; their last checkpoints stay."""
        for entry in self.running:
            if entry.process.poll() is None:
                entry.process.kill()
                entry.process.wait()


def run_jobs(
    jobs: Sequence[Job],
    records: Records,
    *,
    workers: int = 1,
    budget: float | None = None,
    data_root: Path | None = None,
    reporter: Reporter = SILENT,
) -> JobResults:
    """Run every job that has no record, and return the records of all jobs.

    After a failed run, the other runs of its series are not tried, as they would fail alike.

    Args:
        workers: number of processes at a time.
        budget: seconds after which all runs are stopped; another call goes on with them.
        reporter: hears a sentence at the start and after every run; if it asks to stop, all runs stop as by the budget.
    """
    with records.locked():
        return _Session(jobs, records, workers, data_root, reporter).work(budget)


class _Session:
    """One call of :func:`run_jobs`."""

    def __init__(
        self, jobs: Sequence[Job], records: Records, workers: int, data_root: Path | None, reporter: Reporter
    ) -> None:
        self.records, self.reporter, self.total = records, reporter, len(jobs)
        self.workers, self.costs, self.outcome = _Workers(records, workers, data_root), Costs(), JobResults()
        self.missing: list[Job] = []
        for job in jobs:
            record = records.read(job) if records.is_finished(job) else None
            if record is None:
                self.missing.append(job)
            else:
                self._keep(job, record)

    def work(self, budget: float | None) -> JobResults:
        end = float("inf") if budget is None else time.monotonic() + budget
        self._say_start()
        try:
            while self.missing or self.workers.running:
                if self.reporter.should_stop() or time.monotonic() > end:
                    self.outcome.stopped = True
                    self.workers.stop()
                    self._collect()
                    break
                self.missing.sort(key=self.costs.seconds)
                while self.missing and len(self.workers.running) < self.workers.count:
                    self.workers.start(self.missing.pop(0))
                time.sleep(_POLL_SECONDS)
                self._collect()
        finally:
            self.workers.kill()
        return self.outcome

    def _collect(self) -> None:
        for entry in self.workers.finished():
            if entry.process.returncode == 0:
                record = self.records.finish(entry.job)
                entry.log.unlink(missing_ok=True)
                self._keep(entry.job, record)
                self._say_record(entry.job, record)
            elif self.records.is_busy(entry.job):
                self.outcome.busy.append(entry.job)
            elif not self.outcome.stopped:
                reason = _reason(entry)
                self.missing = [job for job in self.missing if job.series.key != entry.job.series.key]
                self.outcome.failures.append((entry.job, reason))
                self.reporter.say(f"failed, and its other runs with it: {_title(entry.job)}: {reason}")

    def _keep(self, job: Job, record: dict[str, Any]) -> None:
        self.outcome.records.append((job, record))
        self.costs.measure(job, record)

    def _left(self) -> str:
        """The time until all are done, as far as can be told."""
        now = time.monotonic()
        begun = [max(self.costs.seconds(entry.job) - (now - entry.started), 0.0) for entry in self.workers.running]
        waiting = sum(self.costs.seconds(entry) for entry in self.missing)
        seconds = (waiting + sum(begun)) / max(1, min(self.workers.count, len(self.missing) + len(begun)))
        return f"about {format_seconds(seconds)} left"

    def _say_start(self) -> None:
        done = len(self.outcome.records)
        count = self.workers.count
        self.reporter.say(f"{done} of {self.total} runs have records; {self._left()} with {count} at a time")

    def _say_record(self, job: Job, record: dict[str, Any]) -> None:
        result, done = record["result"], len(self.outcome.records)
        score = "no test score" if result["test"] is None else f"{result['metric']} {result['test']:.4f}"
        took = format_seconds(result["seconds"])
        self.reporter.say(f"[{done}/{self.total}] {_title(job)}: {score} in {took}; {self._left()}")


def _title(job: Job) -> str:
    series, request = job.series, job.request
    return f"{series.label} on {series.dataset}, split {request.split}, seed {request.seed}"


def _scratch(run: Path) -> Path:
    """The folder in which a run that starts from scratch keeps what it computes from the graph."""
    return run.with_name(f"{run.name}.precomputed")


def _reason(entry: _Running) -> str:
    """Why a run failed: the last line of its output, which is a sentence on the error."""
    if entry.process.returncode < 0:
        return f"It was ended by signal {-entry.process.returncode}; perhaps memory ran out. Try fewer --workers."
    lines = entry.log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("polyformer: ") if lines else "It ended without a word."
