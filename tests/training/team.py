"""Processes that stay, joined by gloo on loopback: a test gives all of them the same function to call."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from polyformer.training.distributed import ProcessGroup
from tests.warm import WARM

SECONDS = 120.0


class Team:
    """``count`` workers; :meth:`run` calls a function of a module, with a :class:`ProcessGroup` first, in each."""

    def __init__(self, count: int, folder: Path) -> None:
        self.pipes, self.processes = [], []
        for rank in range(count):
            ours, theirs = WARM.Pipe()
            process = WARM.Process(target=_serve, args=(rank, count, str(folder / "store"), theirs), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def start(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        for pipe in self.pipes:
            pipe.send((function, arguments, options))

    def collect(self) -> list[Any]:
        """The value that each worker returned, the error that it raised, or None if the worker has ended."""
        results = []
        for pipe in self.pipes:
            assert pipe.poll(SECONDS), "a worker does not answer"
            try:
                results.append(pipe.recv())
            except EOFError:
                results.append(None)
        return results

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Any]:
        self.start(function, *arguments, **options)
        return self.collect()

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()


def _serve(rank: int, count: int, store: str, pipe: Connection) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    shared = dist.FileStore(store, count)
    dist.init_process_group("gloo", store=shared, rank=rank, world_size=count, timeout=timedelta(seconds=SECONDS))
    group = ProcessGroup(shared)
    while True:
        try:
            function, arguments, options = pipe.recv()
        except EOFError:
            os._exit(0)  # the others may be gone already: nothing is worth waiting for
        try:
            with group.watched():
                result = function(group, *arguments, **options)
        except Exception as error:
            result = error
        pipe.send(result)
