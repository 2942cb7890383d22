"""A reporter for tests: it passes what it hears on to functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polyformer.reporter import EpochRecord, Reporter


@dataclass(frozen=True, eq=False)
class Listener(Reporter):
    """Calls ``on_say(sentence)``, ``on_stage(work, done, total)``, ``on_share(done)`` and ``on_epoch(record)``.

    ``stop()`` is what it answers to the question whether the work shall stop.
    """

    on_say: Callable[[str], Any] = lambda _: None
    on_stage: Callable[..., Any] = lambda *_: None
    on_share: Callable[[float], Any] = lambda _: None
    on_epoch: Callable[[EpochRecord], Any] = lambda _: None
    stop: Callable[[], bool] = lambda: False

    def say(self, sentence: str) -> None:
        self.on_say(sentence)

    def stage(self, work: str, done: int, total: int | None = None) -> None:
        self.on_stage(work, done, total)

    def share(self, work: str, done: float) -> None:
        self.on_share(done)

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        self.on_epoch(record)

    def should_stop(self) -> bool:
        return self.stop()
