"""A Ray cluster of several nodes on this machine, on loopback alone, and what its processes listen on."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from polyformer.cluster import import_ray

NODE = {
    "num_cpus": 1,
    "memory": 2 << 30,
    "object_store_memory": 80 << 20,
    "node_ip_address": "127.0.0.1",
    "include_dashboard": False,
}


@contextmanager
def small_cluster() -> Iterator[Any]:
    """A cluster of two nodes of one CPU; its end ends only the processes that it started."""
    import_ray()
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="ray-")  # a short path: sockets lie in it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)  # so that no other cluster of this machine is taken for it
        cluster = Cluster(initialize_head=True, head_node_args=NODE)
        try:
            cluster.add_node(**NODE)
            yield cluster
        finally:
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def descendants(pid: int) -> set[int]:
    """The ids of a process and of all processes that it has started, directly or not."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found, more = {pid}, True
    while more:
        more = {child for child, parent in parents.items() if parent in found} - found
        found |= more
    return found


def open_files(pids: set[int]) -> set[str]:
    """The files and sockets that these processes have open."""
    open_names = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                open_names.add(str(handle.readlink()))
    return open_names


def listening(pids: set[int]) -> set[str]:
    """The addresses, in the system's hexadecimal form, on which these processes accept TCP connections."""
    owned = {name[8:-1] for name in open_files(pids) if name.startswith("socket:[")}
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in owned:
                addresses.add(fields[1].partition(":")[0])
    return addresses


LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
