"""A plugin of pytest (``-p tests.without_modules``): modules of POSIX are gone before any test is imported."""

from __future__ import annotations

import multiprocessing.resource_tracker  # noqa: F401  # the libraries of Python and others need the modules first
import sys
import tempfile  # noqa: F401

import torch  # noqa: F401

for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None  # type: ignore[assignment]
