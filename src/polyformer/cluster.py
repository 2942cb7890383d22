"""Ray, if it is installed: a running cluster or one started on this machine, and the tasks that run on it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from polyformer.errors import InvalidParameter, MissingDependency, OutOfResources, PolyformerError
from polyformer.machine import format_bytes, num_cores

__all__ = ["MAX_RETRIES", "Node", "capacity", "connected", "cpus_per_task", "import_ray", "nodes", "run_tasks"]

MAX_RETRIES = 3
"""How often a task whose process or node was lost is started again."""

_OBJECT_STORE_BYTES = 128 << 20  # arguments and results are small: what is large lies in files
_REACH_SECONDS = 5.0
_WAIT_SECONDS = 1.0
_FAREWELL_SECONDS = 10.0
_LOST_SECONDS = 60.0

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Node:
    """A node that is alive: the CPUs and the bytes of memory it offers to tasks."""

    cpus: int
    memory: int


def import_ray() -> ModuleType:
    """The package, with its usage reports switched off; an error says how to install it where it is missing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its new default, without a warning
    try:
        import ray
    except ImportError:
        raise MissingDependency("Ray is not installed. Install it with: pip install 'polyformer[ray]'") from None
    return ray


@contextlib.contextmanager
def connected(address: str | None = None, cpus: int | None = None) -> Iterator[ModuleType]:
    """Ray, connected to a cluster; a process that is connected already stays so, any other is disconnected at the end.

    Args:
        address: ``auto`` for the cluster of this machine, or ``HOST:PORT``; by default a cluster is started on this
            machine, on 127.0.0.1 alone, and ends with the block.
        cpus: tasks that a cluster started here runs at a time if each takes one CPU; by default one for each core.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is not None:
        _check_address(address)
    with _loopback_kept(ray), _handlers_kept():
        if address is None:
            ray.init(
                "local",
                num_cpus=num_cores() if cpus is None else cpus,
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                **quiet,
            )
        else:
            try:
                ray.init(address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise _unreachable(address, str(error).split("\n")[0].rstrip(".")) from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _loopback_kept(ray: ModuleType) -> Iterator[None]:
    """Have Ray take 127.0.0.1 as it is: it would put the machine's public address in its place and listen there."""
    constants = ray._private.ray_constants
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Keep what the program does on SIGTERM, if it says so itself: Ray puts an exit in its place."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _check_address(address: str) -> None:
    """Refuse an address of another form, or one where nothing listens, at once: Ray itself would try for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise InvalidParameter(f"'--address' must be auto or HOST:PORT of a Ray cluster. Got '{address}'.")
    try:
        socket.create_connection((host, int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, getattr(error, "strerror", None) or str(error)) from None


def _unreachable(address: str, reason: str) -> OutOfResources:
    return OutOfResources(
        f"No Ray cluster could be joined at '{address}' ({reason}). Start one with `ray start --head`, run this on one "
        f"of its nodes, correct --address, or leave it out."
    )


def nodes() -> list[Node]:
    """What the nodes of the connected cluster offer, at least one; those without a CPU for tasks are left out."""
    alive = _alive()
    if not alive:
        raise OutOfResources("The Ray cluster has no node with a CPU for tasks. Add nodes to it.")
    return alive


def _alive() -> list[Node]:
    resources = [node["Resources"] for node in import_ray().nodes() if node["Alive"]]
    return [Node(int(has["CPU"]), int(has.get("memory", 0))) for has in resources if has.get("CPU", 0) >= 1]


def cpus_per_task(tasks: int, machines: Sequence[Node]) -> int:
    """The most CPUs that each of so many tasks can have, none of them spread over two nodes; 0 if the CPUs are too few.

    >>> cpus_per_task(2, [Node(8, 0), Node(8, 0)]), cpus_per_task(5, [Node(8, 0), Node(8, 0)])
    (8, 2)
    """
    choices = range(max((node.cpus for node in machines), default=0), 0, -1)
    return next((cpus for cpus in choices if sum(node.cpus // cpus for node in machines) >= tasks), 0)


def capacity() -> tuple[int, int]:
    """How many tasks of one CPU the connected cluster runs at a time, and the bytes of memory there are for each."""
    machines = nodes()
    return sum(node.cpus for node in machines), min(node.memory // node.cpus for node in machines)


def run_tasks(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    *,
    at_once: int,
    cpus: int = 1,
    memory: int = 0,
    meanwhile: Callable[[], None] = lambda: None,
) -> Generator[tuple[Argument, Result]]:
    """Call a function with each argument on the connected cluster; argument and result, as they finish.

    A task must be idempotent: it is started again, up to :data:`MAX_RETRIES` times, where its process or node is lost.

    Args:
        function: a function of a module that every node can import, or a ``partial`` of one; its arguments and results
            are small.
        at_once: tasks that are under way at a time, at most.
        cpus: of one task.
        memory: bytes of one task, by which Ray places it.
        meanwhile: called about once a second.
    """
    ray = import_ray()
    task = ray.remote(_call).options(
        num_cpus=cpus, memory=memory, max_retries=MAX_RETRIES, scheduling_strategy="SPREAD"
    )
    waiting = iter(arguments)
    pending: dict[Any, Argument] = {}
    homeless = _Homeless(cpus, memory)
    try:
        while True:
            for argument in itertools.islice(waiting, at_once - len(pending)):
                pending[task.remote(function, argument)] = argument
            if not pending:
                return
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=_WAIT_SECONDS)
            for reference in ready:
                argument = pending.pop(reference)
                yield argument, _result(ray, reference)
            if not ready:
                homeless.check()
            meanwhile()
    finally:
        for reference in pending:
            ray.cancel(reference)
        if pending:  # so that the next run does not find them
            ray.wait(list(pending), num_returns=len(pending), timeout=_FAREWELL_SECONDS)


def _call(function: Callable[[Argument], Result], argument: Argument) -> Result:
    return function(argument)


class _Homeless:
    """Ends the wait for tasks that no node can hold: Ray would wait for such a node for ever."""

    def __init__(self, cpus: int, memory: int) -> None:
        self.cpus, self.memory, self.since = cpus, memory, float("inf")

    def check(self) -> None:
        if any(node.cpus >= self.cpus and node.memory >= self.memory for node in _alive()):
            self.since = float("inf")
            return
        self.since = min(self.since, time.monotonic())
        if time.monotonic() - self.since > _LOST_SECONDS:
            raise OutOfResources(
                f"No node of the Ray cluster has the {self.cpus} CPUs and {format_bytes(self.memory)} of memory that a "
                f"task takes. Add nodes, or run again with more --workers or less --memory; what is done is kept."
            )


def _result(ray: ModuleType, reference: Any) -> Any:
    """What a task gave; an error of ours is raised as it was, any other becomes one sentence."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, PolyformerError):
            raise error.cause from None
        reason = f"{type(error.cause).__name__}: {error.cause}" if error.cause is not None else str(error)
    except ray.exceptions.RayError as error:  # its process or node was lost once too often
        reason = f"{type(error).__name__}: {error}"
    lines = " ".join(reason.split())
    raise OutOfResources(f"A task failed on the Ray cluster ({lines[:300]}). Run again; what is done is kept.")
