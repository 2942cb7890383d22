"""Ctrl-C that loses nothing: the first asks training to stop after its epoch, the second stops at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["graceful_interrupt"]


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
