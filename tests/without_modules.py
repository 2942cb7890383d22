"""A plugin of pytest (``-p tests.without_modules``): modules of POSIX are gone before any test is imported.

They go in a hook that only a plugin has: a search for doctests imports this file too, and must change nothing.
"""

from __future__ import annotations

import multiprocessing.resource_tracker  # noqa: F401  # the libraries of Python and others need the modules first
import sys
import tempfile  # noqa: F401

import pytest
import torch  # noqa: F401
import torch_geometric  # noqa: F401


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Take the modules away before ``conftest.py`` is read."""
    for name in ("fcntl", "resource", "termios", "pwd", "grp"):
        sys.modules[name] = None  # type: ignore[assignment]
