"""The output of the commands: progress bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from polyformer.durations import format_seconds
from polyformer.interrupts import is_first_worker
from polyformer.reporter import EpochRecord, Reporter

__all__ = ["Display"]

SECONDS_PER_LINE = 5.0


class Display:
    """Prints for people; with ``json_only`` stdout gets the result alone and stderr all else."""

    def __init__(self, json_only: bool = False) -> None:
        self.json_only = json_only
        self.console = Console(stderr=json_only, highlight=False, soft_wrap=True, quiet=not is_first_worker())

    def say(self, text: str = "") -> None:
        """Print a line."""
        self.console.print(text, markup=False)

    def result(self, content: Any) -> None:
        """Print the result as JSON if the user asked for JSON."""
        if self.json_only and is_first_worker():
            sys.stdout.write(json.dumps(content, indent=2) + "\n")

    @contextlib.contextmanager
    def reporter(
        self,
        epochs: int = 0,
        work: float = 0.0,
        unit: str = "",
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Reporter]:
        """Show how far long work is: bars on a terminal, a line now and then elsewhere.

        Args:
            epochs: how many epochs there may be.
            work: how much there is in all of what is told as shares, in ``unit``: then the rate is shown. What was done
                before this process started, as the first report tells, counts for neither the rate nor the time left.
            should_stop: whether the user has asked to stop.
        """
        about = _About(self, epochs, work, unit, should_stop)
        if not self.console.is_terminal:
            yield _Lines(about)
            return
        bars = _Bars(about)
        try:
            yield bars
        finally:
            bars.close()


@dataclass
class _About:
    """What a reporter of the command line shows, and where."""

    display: Display
    epochs: int
    work: float
    unit: str
    should_stop: Callable[[], bool]
    start: float = field(default_factory=lambda: time.monotonic())
    first: dict[str, float] = field(default_factory=dict)

    def pace(self, work: str, done: float) -> tuple[str, str]:
        """The rate and the time left, for people; nothing while nothing has been done."""
        rate = (done - self.first.setdefault(work, done)) / max(time.monotonic() - self.start, 1e-9)
        if rate <= 0:
            return "", ""
        left = f", {format_seconds((1 - done) / rate)} left"
        return (f", {rate * self.work:,.0f} {self.unit}/s" if self.work else ""), left


class _Shown(Reporter):
    """What bars and lines have in common."""

    def __init__(self, about: _About) -> None:
        self._about = about

    def say(self, sentence: str) -> None:
        self._about.display.say(sentence)

    def should_stop(self) -> bool:
        return self._about.should_stop()


class _Lines(_Shown):
    """A line now and then."""

    def __init__(self, about: _About) -> None:
        super().__init__(about)
        self._last = {"stage": about.start, "epoch": -math.inf}

    def _is_time(self, kind: str, always: bool = False) -> bool:
        now = time.monotonic()
        if now - self._last.get(kind, self._about.start) > SECONDS_PER_LINE or always:
            self._last[kind] = now
            return True
        return False

    def stage(self, work: str, done: int, total: int | None = None) -> None:
        if self._is_time("stage"):
            self.say(f"{work}: {done:,}" + ("" if total is None else f" of {total:,}"))

    def share(self, work: str, done: float) -> None:
        is_time, (rate, left) = self._is_time(f"share of {work}"), self._about.pace(work, done)
        if is_time:
            self.say(f"{work}: {100 * done:.0f} %{rate}{left}")

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        total = self._about.epochs
        if self._is_time("epoch", always=record.epoch == total):
            self.say(f"epoch {record.epoch}/{total} {_epoch_text(record, best_epoch, best_score)}")


class _Bars(_Shown):
    """Bars: one for every stage, or every share, or the epochs; those of another kind go."""

    def __init__(self, about: _About) -> None:
        super().__init__(about)
        self._kind, self._tasks = "", dict[str, Any]()
        self._progress: Progress | None = None

    def _bar(self, kind: str, work: str, total: float | None, **fields: Any) -> tuple[Progress, Any]:
        """The bar of a piece of work, made if it is not there."""
        if self._kind != kind or self._progress is None:
            self.close()
            console = self._about.display.console
            self._kind, self._progress = kind, Progress(*_columns(kind), console=console, transient=kind != "epoch")
            self._progress.start()
        if work not in self._tasks:
            self._tasks[work] = self._progress.add_task(work, total=total, **fields)
        return self._progress, self._tasks[work]

    def close(self) -> None:
        """Take the bars away; that of the epochs stays as it is."""
        if self._progress is not None:
            self._progress.stop()
        self._progress, self._tasks = None, {}

    def stage(self, work: str, done: int, total: int | None = None) -> None:
        progress, task = self._bar("stage", work, total)
        progress.update(task, completed=done, total=total)

    def share(self, work: str, done: float) -> None:
        progress, task = self._bar("share", work, 1.0, visible=False, rate="")
        visible = time.monotonic() - self._about.start > 0.5
        progress.update(task, completed=done, visible=visible, rate=self._about.pace(work, done)[0])

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        progress, task = self._bar("epoch", "", self._about.epochs)
        text = _epoch_text(record, best_epoch, best_score)
        progress.update(task, completed=record.epoch, description=text)


def _columns(kind: str) -> tuple[ProgressColumn, ...]:
    """What a bar shows besides itself."""
    text, left = TextColumn("{task.description}"), TimeRemainingColumn()
    if kind == "share":
        return text, BarColumn(), TextColumn("{task.percentage:3.0f} %{task.fields[rate]}"), left
    if kind == "stage":
        return text, BarColumn(), MofNCompleteColumn(), left
    return TextColumn("epoch"), MofNCompleteColumn(), BarColumn(bar_width=24), text, left


def _epoch_text(record: EpochRecord, best_epoch: int, best_score: float) -> str:
    val, best = (f"{score:.4f}" if math.isfinite(score) else "–" for score in (record.val, best_score))
    return f"loss {record.loss:.4f}  val {val}  best {best} (epoch {best_epoch})"
