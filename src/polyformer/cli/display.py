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

if TYPE_CHECKING:
    from polyformer.progress import Share, Stages
    from polyformer.training.loop import EpochRecord, Observer

__all__ = ["Display"]

SECONDS_PER_LINE = 5.0


class Display:
    """Prints for people; with ``json`` everything but the result goes to stderr."""

    def __init__(self, json_only: bool = False) -> None:
        self.json_only = json_only
        self.console = Console(stderr=json_only, highlight=False, soft_wrap=True)

    def say(self, text: str = "") -> None:
        """A line."""
        self.console.print(text, markup=False)

    def result(self, content: Any) -> None:
        """The machine-readable result, if that was asked for."""
        if self.json_only:
            sys.stdout.write(json.dumps(content, indent=2) + "\n")

    @contextlib.contextmanager
    def share(self, title: str) -> Iterator[Share]:
        """Progress of a step that tells the share of its work that is done; shown if it takes longer than a moment."""
        start = time.monotonic()
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f} %"),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=self.console, transient=True) as bar:
                task = bar.add_task(title, total=1.0, visible=False)
                yield lambda done: bar.update(task, completed=done, visible=time.monotonic() - start > 0.5)
            return
        last = start

        def line(done: float) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last > SECONDS_PER_LINE:
                last = now
                self.say(f"{title}: {100 * done:.0f} %, {(now - start) * (1 - done) / max(done, 1e-9):.0f} s left")

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
    return f"loss {record.loss:.4f}  val {record.val:.4f}  best {best_score:.4f} (epoch {best_epoch})"
