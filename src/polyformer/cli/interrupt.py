"""Ctrl-C that loses nothing: the first asks training to stop after its epoch, the second stops at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from polyformer.errors import TrainingInterrupted

__all__ = ["graceful_interrupt", "saying_what_stays", "stopping", "what_stays"]


@contextlib.contextmanager
def graceful_interrupt(announce: Callable[[str], None], stays: Callable[[], str]) -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether Ctrl-C, a polite kill or a closed terminal has asked to stop.

    Args:
        announce: is told what happens then.
        stays: what a second Ctrl-C leaves at that moment, for people.
    """
    asked = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        with contextlib.suppress(OSError):  # the terminal may be gone
            announce(f"Stopping after this step or epoch; press Ctrl-C again to stop at once ({stays()}).")

    heard = [signal.SIGINT, signal.SIGTERM]
    hangup = getattr(signal, "SIGHUP", None)  # not on every system
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:  # nohup ignores it
        heard.append(hangup)
    previous = {number: signal.signal(number, handle) for number in heard}
    try:
        yield asked.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _StoppedPreparing(TrainingInterrupted):
    """The user stopped the work before its first epoch."""


def stopping(told: Callable[..., None], should_stop: Callable[[], bool]) -> Callable[..., None]:
    """The same listener, which ends the preparation once that is asked for; what it has put on disk is used again."""

    def tell(*facts: Any) -> None:
        told(*facts)
        if should_stop():
            raise _StoppedPreparing

    return tell


@contextlib.contextmanager
def saying_what_stays(out: Path) -> Iterator[None]:
    """Tell of a run that was stopped while it was prepared where it stands, after useless files were removed."""
    from polyformer.training.run_directory import RunDirectory

    try:
        yield
    except _StoppedPreparing:
        if not (out / "config.json").exists():
            raise TrainingInterrupted("Stopped before the first epoch. Nothing was written.") from None
        moment = "training went on" if RunDirectory(out).checkpoint.exists() else "the first epoch"
        raise TrainingInterrupted(
            f"Stopped before {moment}. Continue with polyformer train --resume --out {out}"
        ) from None


def what_stays(out: Path) -> str:
    """What a run that is stopped at once leaves."""
    from polyformer.training.run_directory import RunDirectory

    saved = RunDirectory(out).checkpoint.exists()
    return "the last checkpoint stays" if saved else "there is no checkpoint yet"
