"""Who works on a study: processes of this machine, or tasks on a Ray cluster whose nodes all see the journal."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from polyformer.cluster import run_tasks
from polyformer.errors import PolyformerError
from polyformer.tuning.journal import Search
from polyformer.tuning.trial_run import work
from polyformer.tuning.trials import take_back

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Event

    import optuna

__all__ = ["in_processes", "on_ray"]

_POLL_SECONDS = 0.5


def in_processes(study: optuna.Study, search: Search, count: int, watch: Callable[[], bool]) -> tuple[bool, str]:
    """Work on a study in processes of this machine; whether it was stopped, and a sentence if some were lost.

    Args:
        watch: called now and then; True asks the processes to stop.
    """
    context = multiprocessing.get_context("spawn")
    stop, failures = context.Event(), context.SimpleQueue()
    processes = [
        context.Process(target=_process, args=(search, number, stop, failures), daemon=True) for number in range(count)
    ]
    try:
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes):
            if watch():
                stop.set()
            time.sleep(_POLL_SECONDS)
            for number, process in enumerate(processes):
                if process.exitcode:
                    take_back(study, search.journal, number)  # for those that are left
        lost = [process.exitcode for process in processes if process.exitcode]
    finally:
        for process in processes:
            process.terminate()
            process.join()
    if not failures.empty():
        raise failures.get()
    if not lost:
        return stop.is_set(), ""
    how = f"signal {-lost[0]}; perhaps memory ran out" if lost[0] < 0 else f"code {lost[0]}"
    return stop.is_set(), f"{len(lost)} of {count} workers ended early, by {how}."


def _process(search: Search, number: int, stop: Event, failures: SimpleQueue[PolyformerError]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the first process's, which sets ``stop``
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        work(search, number, stop.is_set)
    except PolyformerError as error:
        failures.put(error)


def _end_with_parent() -> None:
    """End this worker at once when the first process was killed, because the next command will take over the study."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def on_ray(search: Search, count: int, watch: Callable[[], bool]) -> bool:
    """Work on a study in tasks on a Ray cluster; whether it was stopped. A file beside the journal tells them to."""
    stop = search.journal.with_name(search.journal.name + ".stop")
    stop.unlink(missing_ok=True)

    def meanwhile() -> None:
        if watch():
            stop.touch()

    tasks = run_tasks(partial(_task, search, stop), range(count), at_once=count, meanwhile=meanwhile)
    try:
        with contextlib.closing(tasks) as finished:
            for _ in finished:
                pass
        return stop.exists()
    finally:
        stop.unlink(missing_ok=True)


def _task(search: Search, stop: Path, number: int) -> None:
    work(search, number, stop.exists)
