"""How long work tells how far it is; the command line turns both into bars."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Share", "Stages", "format_seconds"]

Share = Callable[[float], None]
"""Told the share of one piece of work that is done, in [0, 1]."""

Stages = Callable[[str, int, int | None], None]
"""Told what is being done, how much of it is (bytes or rows), and how much there is in all, if known."""


def format_seconds(seconds: float) -> str:
    """A time to read, as exact as an estimate is.

    >>> format_seconds(75), format_seconds(1500), format_seconds(9000)
    ('75 s', '25 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
