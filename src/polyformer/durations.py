"""Times for people: a duration in words, and words as a duration."""

from __future__ import annotations

import re

from polyformer.errors import InvalidParameter

__all__ = ["format_seconds", "parse_seconds"]


def format_seconds(seconds: float) -> str:
    """A time to read, as exact as an estimate is.

    >>> format_seconds(75), format_seconds(1500), format_seconds(9000)
    ('75 s', '25 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def parse_seconds(text: str) -> float:
    """A time as people write it.

    >>> parse_seconds("2h"), parse_seconds("1h30m"), parse_seconds("45 min"), parse_seconds("90")
    (7200.0, 5400.0, 2700.0, 90.0)
    """
    units = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    compact = text.lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)(min|[smhd]?)", compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise InvalidParameter(f"A time must read like 2h, 45min or 1h30m. Got '{text}'.")
    return sum(float(number) * units[unit] for number, unit in parts)
