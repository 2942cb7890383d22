"""How long work tells how far it is; the command line turns both into bars."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Share", "Stages"]

Share = Callable[[float], None]
"""Told the share of one piece of work that is done, in [0, 1]."""

Stages = Callable[[str, int, int | None], None]
"""Told what is being done, how much of it is (bytes or rows), and how much there is in all, if known."""
