"""Ctrl-C that loses nothing: the first asks training to stop after its epoch, the second stops at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["graceful_interrupt"]


@contextlib.contextmanager
def graceful_interrupt(announce: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether Ctrl-C, a polite kill or a closed terminal has asked to stop."""
    asked = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        with contextlib.suppress(OSError):  # the terminal may be gone
            announce("Stopping after this epoch; press Ctrl-C again to stop at once (the last checkpoint stays).")

    wanted = [signal.SIGINT, signal.SIGTERM, *filter(None, [getattr(signal, "SIGHUP", None)])]
    heard = [number for number in wanted if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores one
    previous = {number: signal.signal(number, handle) for number in heard}
    try:
        yield asked.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
