"""Ctrl-C that loses nothing: the first one stops training after the epoch, the second one stops at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from polyformer.errors import TrainingInterrupted
from polyformer.reporter import Tee

__all__ = ["StopPreparing", "graceful_interrupt", "saying_what_stays", "what_stays"]


@contextlib.contextmanager
def graceful_interrupt(announce: Callable[[str], None], stays: Callable[[], str]) -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C, a polite kill or a closed terminal has asked the program to stop.

    Args:
        announce: gets a sentence when the program is asked to stop.
        stays: gives words for what a second Ctrl-C leaves on disk at that moment.
    """
    stop_requested = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop_requested.is_set():
            raise KeyboardInterrupt
        stop_requested.set()
        with contextlib.suppress(OSError):  # the terminal may be gone
            announce(f"Stopping after this step or epoch; press Ctrl-C again to stop at once ({stays()}).")

    signals = [signal.SIGINT, signal.SIGTERM]
    signals += [signal.Signals[name] for name in ("SIGBREAK",) if name in signal.Signals.__members__]  # Windows
    hangup = getattr(signal, "SIGHUP", None)  # not on every system
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:  # nohup makes the program ignore SIGHUP
        signals.append(hangup)
    previous = {number: signal.signal(number, handle) for number in signals}
    try:
        yield stop_requested.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _StoppedPreparing(TrainingInterrupted):
    """The user stopped the work before its first epoch."""


class StopPreparing(Tee):
    """Tells another reporter, and ends the preparation once that is asked for; what is on disk is used again."""

    def say(self, sentence: str) -> None:
        super().say(sentence)
        self._stop_if_asked()

    def stage(self, work: str, done: int, total: int | None = None) -> None:
        super().stage(work, done, total)
        self._stop_if_asked()

    def share(self, work: str, done: float) -> None:
        super().share(work, done)
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self.should_stop():
            raise _StoppedPreparing


@contextlib.contextmanager
def saying_what_stays(out: Path) -> Iterator[None]:
    """Tell of a run that was stopped while it was prepared where it stands, after useless files were removed."""
    from polyformer.runs.directory import checkpoint_file

    try:
        yield
    except _StoppedPreparing:
        if not (out / "config.json").exists():
            raise TrainingInterrupted("Stopped before the first epoch. Nothing was written.") from None
        moment = "training went on" if checkpoint_file(out).exists() else "the first epoch"
        raise TrainingInterrupted(
            f"Stopped before {moment}. Continue with polyformer train --resume --out {out}"
        ) from None


def what_stays(out: Path) -> str:
    """What a run that is stopped at once leaves."""
    from polyformer.runs.directory import checkpoint_file

    saved = checkpoint_file(out).exists()
    return "the last checkpoint stays" if saved else "there is no checkpoint yet"
