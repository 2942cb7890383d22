"""Ctrl-C: at any moment it ends the program with one sentence and exit code 130.

Python raises ``KeyboardInterrupt`` wherever it is. Inside an import that is no good place: extension modules are left
half made, libraries take it for a missing package, and callbacks of the import system print it and lose it.

This module imports next to nothing: until :func:`listen` is called, Ctrl-C still gives a traceback.
"""

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from types import FrameType
    from typing import Any
else:
    import _signal as signal  # the same functions without enumerations, which take a while to load

__all__ = [
    "EXIT_CODE",
    "SENTENCE",
    "end_at_once",
    "is_first_worker",
    "is_interrupt",
    "listen",
    "stop_listening",
]

EXIT_CODE = 130
SENTENCE = "polyformer: Interrupted."


def listen() -> None:
    """From now on Ctrl-C ends the program at once during an import, and raises ``KeyboardInterrupt`` elsewhere.

    Where it is ignored, as in a job that a script runs in the background, it stays so.
    """
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _handle)
    sys.unraisablehook = _deliver_again


def stop_listening() -> None:
    """The work is done: from now on Ctrl-C only ends what is left of the program."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, end_at_once)


def is_interrupt(error: BaseException) -> bool:
    """Whether an error stands for Ctrl-C: Arrow takes the signal for itself while it reads a table."""
    return isinstance(error, KeyboardInterrupt) or type(error).__name__ == "ArrowCancelled"


def end_at_once(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """Say the sentence and end this process without taking the interpreter apart; also a handler of signals."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, RuntimeError):  # nobody listens, or the signal came while something was written
        pass
    try:
        if is_first_worker():
            os.write(2, f"{SENTENCE}\n".encode())
    finally:
        os._exit(EXIT_CODE)


def is_first_worker() -> bool:
    """Whether this process speaks: of the workers that ``torchrun`` started, the first speaks for all."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def _handle(number: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        end_at_once()
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _deliver_again(unraisable: Any) -> None:
    """An interrupt that came in a callback, which cannot raise, is raised where the callback returns to."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _thread.interrupt_main()
    else:
        sys.__unraisablehook__(unraisable)
