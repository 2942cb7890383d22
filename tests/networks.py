"""Network namespaces: tests that know no network but loopback, and processes that live in the network of their test."""

from __future__ import annotations

import ctypes
import functools
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["join_network", "loopback_only", "network_of_this_thread"]

_NEW_NETWORK, _SET_FLAGS, _UP = 0x40000000, 0x8914, 1


@contextmanager
def loopback_only() -> Iterator[None]:
    """Put this process, and all processes that it starts meanwhile, into a network namespace with loopback alone.

    What torch opens for a rendezvous listens on every interface; here there is one. Needs root, and does nothing else.
    """
    networks = _networks()
    if networks is None:
        yield
        return
    home, own = networks
    _enter(own)
    try:
        yield
    finally:
        _enter(home)


def network_of_this_thread() -> str:
    """The file that stands for the network of the calling thread; other processes can open it."""
    return f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net"


def join_network(network: str) -> None:
    """Put the calling process into a network that :func:`network_of_this_thread` named, unless it is there already."""
    if not os.path.exists(network) or os.stat(network).st_ino == os.stat(network_of_this_thread()).st_ino:
        return
    handle = os.open(network, os.O_RDONLY)
    _enter(handle)
    os.close(handle)


def _enter(network: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.setns(network, _NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())


@functools.cache
def _networks() -> tuple[int, int] | None:
    """Handles of this process's first network namespace and of a new one; None where namespaces are not allowed."""
    here = network_of_this_thread()
    if not os.path.exists(here):
        return None
    import fcntl  # as the rest of this function, only where there is Linux

    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open(here, os.O_RDONLY)
    if libc.unshare(_NEW_NETWORK) != 0:
        os.close(home)
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))
        return home, os.open(here, os.O_RDONLY)
    finally:
        _enter(home)
