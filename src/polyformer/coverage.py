r"""Sets of classes, and intervals of values, that hold the truth with a frequency that the user asks for.

Split conformal prediction: with the nonconformity :math:`s_1 ≤ … ≤ s_n` of n nodes that neither training nor
calibration has used, the bound is :math:`s_r` of rank :math:`r = ⌈(n + 1) · coverage⌉`. A node's set has every class
whose nonconformity is at most the bound. If the node and the n nodes are drawn alike, the truth is in the set with
at least the frequency asked for, and at most 1/(n + 1) above it if no two values of nonconformity are equal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.calibration import Calibration
from polyformer.errors import InvalidParameter

__all__ = ["Coverage", "check_coverage"]


def check_coverage(coverage: Any) -> float:
    """The frequency asked for, between 0 and 1."""
    number = not isinstance(coverage, bool) and isinstance(coverage, int | float | np.integer | np.floating)
    if not number or not 0 < float(coverage) < 1:
        raise InvalidParameter(f"'coverage' must lie between 0 and 1. Got {coverage!r}. Try 0.9.")
    return float(coverage)


@dataclass(frozen=True)
class Coverage:
    """What to add to predictions so that they hold the truth with a given frequency.

    Attributes:
        share: the frequency asked for.
        bound: the largest nonconformity of a class that is in a set, or half the width of an interval.
        nodes: by how many validation nodes the bound was found.
        of_values: whether the predictions are real values rather than probabilities of classes.

    Example:
        >>> held_out = Calibration(held_out=(0.1, 0.2, 0.3, 0.4))
        >>> coverage = Coverage.of(held_out, 0.8, of_values=False)
        >>> coverage.sets(np.array([[0.65, 0.3, 0.05], [0.5, 0.4, 0.1]]))
        array([[ True, False, False],
               [False, False, False]])
    """

    share: float
    bound: float
    nodes: int
    of_values: bool

    @classmethod
    def of(cls, calibration: Calibration, coverage: float, of_values: bool) -> Coverage:
        """The bound from the validation nodes that a model holds out; refused where they are too few."""
        share = check_coverage(coverage)
        if calibration.held_out is None:
            raise InvalidParameter(
                "'coverage' needs validation nodes that were held out, and this model has none: its run is not "
                "finished, or an earlier version trained it. Finish it, or train it again."
            )
        count = len(calibration.held_out)
        rank = math.ceil(round((count + 1) * share, 9))  # rounded, as 0.9 · 10 must not become 9.000…1
        if rank > count:
            least = math.ceil(round(share / (1 - share), 9))
            largest = f"Ask for {count / (count + 1):.3g} at most, or put" if count else "Put"
            raise InvalidParameter(
                f"'coverage' of {share:g} needs {least:,} validation nodes that were held out, half of all. This model "
                f"has {count:,}. {largest} more labelled nodes into validation."
            )
        return cls(share, calibration.held_out[rank - 1], count, of_values)

    def describe(self) -> str:
        """What was added to the predictions, in a sentence."""
        if self.of_values:
            what = (
                f"the columns 'low' and 'high' are the prediction minus and plus {self.bound:.4g}, and hold the truth"
            )
        else:
            what = f"the column 'set' has every class of probability {1 - self.bound:.4f} and more, and holds the truth"
        return f"{what} in at least {100 * self.share:g} % of nodes, by {self.nodes:,} validation nodes held out for it"

    def sets(self, probabilities: np.ndarray) -> np.ndarray:
        """Whether each class is in the set of each node: (n, C) -> (n, C) bool.

        A set is empty where no class is as probable as it usually is: the model is right more often than was asked for.
        """
        return np.asarray(1 - probabilities <= self.bound)

    def intervals(self, values: np.ndarray) -> np.ndarray:
        """The ends of each node's interval: (n, 1) -> (n, 2)."""
        return np.concatenate([values[:, :1] - self.bound, values[:, :1] + self.bound], axis=1)

    def columns(self, scores: np.ndarray, names: Sequence[str], as_text: bool) -> dict[str, Any]:
        """Columns of a table of predictions: ``low`` and ``high`` of real values, else ``set``.

        Args:
            names: names of the classes.
            as_text: write a set as a JSON list, for files that know no lists.
        """
        if self.of_values:
            ends = self.intervals(scores)
            return {"low": ends[:, 0], "high": ends[:, 1]}
        import pyarrow as pa

        members = self.sets(scores)
        starts = np.concatenate([[0], np.cumsum(members.sum(axis=1))]).astype(np.int32)
        sets = pa.ListArray.from_arrays(starts, pa.array(list(names), pa.string()).take(np.nonzero(members)[1]))
        if as_text:
            sets = pa.array([json.dumps(each, ensure_ascii=False) for each in sets.to_pylist()], pa.string())
        return {"set": sets}
