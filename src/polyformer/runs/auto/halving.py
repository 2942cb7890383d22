"""Successive halving as pure logic: who goes on to the next round, and how long each may train in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

__all__ = ["num_rounds", "slice_seconds", "survivors"]


def num_rounds(count: int) -> int:
    """Rounds until one of ``count`` candidates is left, the last round for this one alone.

    >>> [num_rounds(count) for count in (1, 2, 3, 6, 8)]
    [1, 2, 3, 4, 4]
    """
    return 1 + math.ceil(math.log2(max(1, count)))


def slice_seconds(left: float, rounds_left: int, waiting: int) -> float:
    """Seconds for the next of ``waiting`` candidates in this round, so that every round takes as long.

    Time that a candidate leaves, because its training ended early, goes to those after it.

    Args:
        left: seconds of the budget that are left.
        rounds_left: rounds that are not over, this one included.
        waiting: candidates of this round that have not had their turn.

    >>> slice_seconds(left=60.0, rounds_left=3, waiting=4)
    5.0
    """
    return max(0.0, left) / max(1, rounds_left) / max(1, waiting)


def survivors(
    names: Sequence[str], scores: Mapping[str, float | None], larger_is_better: bool = True
) -> tuple[list[str], list[str]]:
    """The better half of the candidates, rounded up, and the others; both in the order of ``names``.

    A candidate without a score counts as the worst. Of equal scores the earlier name is better: it is the cheaper one.

    >>> survivors(["a", "b", "c"], {"a": 0.7, "b": None, "c": 0.9})
    (['a', 'c'], ['b'])
    """
    sign = -1.0 if larger_is_better else 1.0

    def rank(name: str) -> float:
        score = scores.get(name)
        return math.inf if score is None else sign * score

    kept = set(sorted(names, key=rank)[: math.ceil(len(names) / 2)])
    return [name for name in names if name in kept], [name for name in names if name not in kept]
