"""Checks of parameters that constructors of several modules share."""

from __future__ import annotations

import numpy as np

from polyformer.errors import InvalidParameter
from polyformer.limits import check_size

__all__ = [
    "check_at_least",
    "check_dropout",
    "check_heads",
    "check_not_negative",
    "check_positive",
    "check_rates",
    "nearest_divisor",
]


def check_positive(**values: int) -> None:
    """Every value must be a whole number of at least 1."""
    check_at_least(1, **values)


def check_at_least(least: int, **values: int) -> None:
    """Every value must be a whole number that is not below ``least``."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise InvalidParameter(f"'{name}' must be a whole number, {least} or more. Got {value!r}.")
        check_size(name, int(value))


def check_dropout(name: str, value: float) -> float:
    """A probability below 1."""
    if not 0 <= value < 1:
        raise InvalidParameter(f"'{name}' must lie in [0, 1). Got {value!r}.")
    return float(value)


def check_rates(**values: float | None) -> None:
    """Every learning rate must be above 0; None stands for the rate of the other parameters."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise InvalidParameter(f"'{name}' must be above 0. Got {value}. Try 0.001.")


def check_not_negative(**values: float | None) -> None:
    """Every weight of a penalty must be 0 or more; None stands for the weight of the other parameters."""
    for name, value in values.items():
        if value is not None and not value >= 0:
            raise InvalidParameter(f"'{name}' must be 0 or more. Got {value}.")


def check_heads(heads: int, **widths: int) -> None:
    """The number of heads must be at least 1 and divide every width."""
    check_positive(heads=heads, **widths)
    for name, width in widths.items():
        if width % heads:
            nearest = nearest_divisor(width, heads)
            raise InvalidParameter(f"'heads' must divide {name}={width}. Got {heads}. Try {nearest}.")


def nearest_divisor(width: int, target: int) -> int:
    """The divisor of ``width`` that is nearest to ``wanted``.

    >>> nearest_divisor(64, 10)
    8
    """
    return min((d for d in range(1, width + 1) if width % d == 0), key=lambda d: abs(d - target))
