"""The lock on a study's journal: held by a process, so that the system releases it when the process is killed.

Optuna's own locks are files. A killed worker leaves its file behind, and the others wait 30 seconds before they remove
it.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from polyformer.files import locked

__all__ = ["JournalLock"]

_PATIENCE_SECONDS = 60.0


class JournalLock:
    """What Optuna's journal asks of a lock: ``acquire`` and ``release``.

    Args:
        journal: the file; the lock is a hidden file beside it.
    """

    def __init__(self, journal: Path) -> None:
        self._path = journal.with_name(f".{journal.name}.write")
        self._threads = threading.Lock()
        self._held = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Wait until no other process and no other thread holds the journal."""
        self._threads.acquire()
        try:
            self._held.enter_context(locked(self._path, None, _PATIENCE_SECONDS, poll=0.002))
        except BaseException:
            self._threads.release()
            raise
        return True

    def release(self) -> None:
        """Let others have the journal."""
        self._held.close()
        self._threads.release()
