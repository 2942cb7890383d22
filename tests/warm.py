"""Processes of their own without the seconds that importing torch takes: each is forked from one that has imported it.

A test that sends a process signals, kills it or limits it takes one from here. A test about starting up, or about the
memory of a process, starts an interpreter instead.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.networks import join_network, network_of_this_thread

__all__ = ["WARM", "WarmProcess"]

_IMPORTS = [
    "__main__",
    "torch",
    "pyarrow",
    "polyformer.cli",
    "polyformer.datasets.minefield",
    "polyformer.importing",
    "polyformer.models.polyformer",
    "polyformer.tokens",
    "polyformer.runs.execution",
    "polyformer.propagation.disk",
    "polyformer.experiments.runner",
    "polyformer.tuning.study",
    "tests.training.test_distributed",
]
CAN_FORK = "forkserver" in multiprocessing.get_all_start_methods()  # not on Windows
WARM = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")
"""Starts processes as :mod:`multiprocessing` does, forked from a process that has done the imports."""
if CAN_FORK:
    WARM.set_forkserver_preload(_IMPORTS)


class WarmProcess:
    """A process that runs ``polyformer ARGUMENTS`` or ``function(*arguments)``; what it prints goes to files.

    Args:
        arguments: of the command line, or of ``function``.
        function: a function at the top of a module of the tests.
        own_session: make it the leader of a process group, so that all it starts can be ended with it.
    """

    def __init__(self, *arguments: Any, function: Callable[..., None] | None = None, own_session: bool = False) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="warm-")
        self.paths = [Path(self.folder.name) / name for name in ("stdout", "stderr")]
        for path in self.paths:
            path.touch()
        place = (dict(os.environ), os.getcwd(), network_of_this_thread())
        work = (arguments, function, own_session, self.paths, *place)
        self._process = WARM.Process(target=_work, args=work)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def output(self) -> str:
        """The text that the process has printed to stdout so far."""
        return self.paths[0].read_text()

    @property
    def errors(self) -> str:
        """The text that the process has printed to stderr so far."""
        return self.paths[1].read_text()

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, seconds: float = 60.0) -> int:
        """The exit code of the process, or the negative number of the signal that ended it."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, f"the process did not end in {seconds} s"
        return code

    def wait_until(self, condition: Callable[[], bool], seconds: float = 90.0) -> None:
        """Wait for something that the process does while it runs."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.is_running, f"the process ended first: {self.errors}"
            assert time.monotonic() < deadline, "the process did not come to that"
            time.sleep(0.005)

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.signal(signal.SIGKILL)
        self._process.join()
        self.folder.cleanup()


def _work(
    arguments: tuple[Any, ...],
    function: Callable[..., None] | None,
    own_session: bool,
    paths: list[Path],
    environment: dict[str, str],
    folder: str,
    network: str,
) -> None:
    for number, path in enumerate(paths, 1):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(handle, number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    join_network(network)  # the process that forks this one stays in the network in which it began
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup tests ignore what the process is to hear
    if own_session:
        os.setsid()
    if function is not None:
        function(*arguments)
        return
    sys.argv = ["polyformer", *map(str, arguments)]
    runpy.run_module("polyformer", run_name="__main__")
