"""What the commands show: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from polyformer.interrupts import is_first_worker
from polyformer.progress import format_seconds

if TYPE_CHECKING:
    from polyformer.progress import Share, Stages
    from polyformer.training.loop import EpochRecord, Observer

__all__ = ["Display"]

SECONDS_PER_LINE = 5.0


class Display:
    """Prints for people; with ``json`` everything but the result goes to stderr."""

    def __init__(self, json_only: bool = False) -> None:
        self.json_only = json_only
        self.console = Console(stderr=json_only, highlight=False, soft_wrap=True, quiet=not is_first_worker())

    def say(self, text: str = "") -> None:
        """A line."""
        self.console.print(text, markup=False)

    def result(self, content: Any) -> None:
        """The machine-readable result, if that was asked for."""
        if self.json_only and is_first_worker():
            sys.stdout.write(json.dumps(content, indent=2) + "\n")

    @contextlib.contextmanager
    def share(self, title: str, work: float = 0.0, unit: str = "") -> Iterator[Share]:
        """Progress of a step that tells the share of its work that is done; shown if it takes longer than a moment.

        Args:
            work: how much there is in all, in ``unit``: then the rate is shown. What was done before this process
                started, as its first report tells, counts for neither the rate nor the time left.
        """
        start = time.monotonic()
        first: float | None = None

        def state(done: float) -> tuple[str, str]:
            """The rate and the time left, for people; nothing while nothing has been done."""
            nonlocal first
            first = done if first is None else first
            rate = (done - first) / max(time.monotonic() - start, 1e-9)
            if rate <= 0:
                return "", ""
            left = f", {format_seconds((1 - done) / rate)} left"
            return (f", {rate * work:,.0f} {unit}/s" if work else ""), left

        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f} %{task.fields[rate]}"),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=self.console, transient=True) as bar:
                task = bar.add_task(title, total=1.0, visible=False, rate="")

                def update(done: float) -> None:
                    bar.update(task, completed=done, visible=time.monotonic() - start > 0.5, rate=state(done)[0])

                yield update
            return
        last = start

        def line(done: float) -> None:
            nonlocal last
            now, (rate, left) = time.monotonic(), state(done)
            if now - last > SECONDS_PER_LINE:
                last = now
                self.say(f"{title}: {100 * done:.0f} %{rate}{left}")

        yield line

    @contextlib.contextmanager
    def stages(self) -> Iterator[Stages]:
        """Progress of downloading and reading: one bar a stage on a terminal, a line now and then elsewhere."""
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            with Progress(*columns, console=self.console, transient=True) as bar:
                tasks: dict[str, Any] = {}

                def update(what: str, done: int, total: int | None) -> None:
                    if what not in tasks:
                        tasks[what] = bar.add_task(what, total=total)
                    bar.update(tasks[what], completed=done, total=total)

                yield update
            return
        last = time.monotonic()

        def line(what: str, done: int, total: int | None) -> None:
            nonlocal last
            if time.monotonic() - last > SECONDS_PER_LINE:
                last = time.monotonic()
                self.say(f"{what}: {done:,}" + ("" if total is None else f" of {total:,}"))

        yield line

    @contextlib.contextmanager
    def epochs(self, total: int) -> Iterator[Observer]:
        """Progress of training: loss and validation score of the last epoch and the best so far."""
        if self.console.is_terminal:
            columns = (
                TextColumn("epoch"),
                MofNCompleteColumn(),
                BarColumn(bar_width=24),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=self.console) as bar:
                task = bar.add_task("", total=total)

                def update(record: EpochRecord, best_epoch: int, best_score: float) -> None:
                    bar.update(task, completed=record.epoch, description=_epoch_text(record, best_epoch, best_score))

                yield update
            return
        last = -math.inf

        def line(record: EpochRecord, best_epoch: int, best_score: float) -> None:
            nonlocal last
            if time.monotonic() - last > SECONDS_PER_LINE or record.epoch == total:
                last = time.monotonic()
                self.say(f"epoch {record.epoch}/{total} {_epoch_text(record, best_epoch, best_score)}")

        yield line


def _epoch_text(record: EpochRecord, best_epoch: int, best_score: float) -> str:
    val, best = (f"{score:.4f}" if math.isfinite(score) else "–" for score in (record.val, best_score))
    return f"loss {record.loss:.4f}  val {val}  best {best} (epoch {best_epoch})"
