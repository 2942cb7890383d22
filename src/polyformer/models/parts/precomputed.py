"""Arrays that are computed once per graph and kept on disk: eigenvectors, return probabilities, node2vec vectors.

The name of a file is made from all that its content depends on, so that it is never out of date. A damaged file is
computed again. The reporter hears of a long computation before it starts; a computation that would take hours, or does
not fit in memory, is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.durations import format_seconds
from polyformer.errors import DataNotFound, FileCorrupt, OutOfResources
from polyformer.files import read_npz, reporting_io_errors, write_npz
from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.models.contract import Workload
from polyformer.reporter import SILENT, Reporter
from polyformer.user_cache import precomputed_root

__all__ = ["Effort", "precomputed"]

FORMAT = 1

MOST_SECONDS = 7200.0
_WORTH_TELLING = 10.0


@dataclass(frozen=True)
class Effort:
    """A rough estimate of what a computation takes.

    Attributes:
        what: the subject of a sentence, e.g. ``"All eigenvectors of 9,000 nodes"``.
        size: bytes of memory.
        advice: a sentence that tells what to do if the computation takes too much.
        workload: how much memory there may be.
    """

    what: str
    seconds: float
    size: float
    advice: str
    workload: Workload

    def announce(self, reporter: Reporter) -> None:
        """Tell the reporter of a long computation; refuse one that does not fit in memory or would take hours."""
        require_memory(self.what, self.size, self.advice, self.workload.memory)
        if self.seconds > MOST_SECONDS:
            raise OutOfResources(
                f"{self.what} would take about {format_seconds(self.seconds)} to compute, more than the "
                f"{format_seconds(MOST_SECONDS)} that are allowed. {self.advice}"
            )
        if self.seconds > _WORTH_TELLING:
            reporter.say(f"{self.what}: computed once for this graph, in about {format_seconds(self.seconds)}")


def precomputed(
    kind: str,
    graph: Graph,
    parameters: Mapping[str, Any],
    compute: Callable[[], dict[str, np.ndarray]],
    effort: Effort,
    reporter: Reporter = SILENT,
) -> dict[str, np.ndarray]:
    """The arrays that ``compute`` returns, read from disk if they were computed before.

    Args:
        kind: what the arrays are, e.g. ``"eigenpairs"``.
        graph: a graph. The arrays may depend on its structure and its weights, not on its features.
        parameters: what else the arrays depend on, as JSON values.
        effort: an estimate of the computation.
        reporter: hears a sentence before a computation that takes long.
    """
    name = json.dumps([FORMAT, kind, graph.structure_fingerprint, dict(parameters)], sort_keys=True)
    path = precomputed_root() / f"{kind}-{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}.npz"
    with contextlib.suppress(DataNotFound, FileCorrupt):
        return read_npz(path, None)
    effort.announce(reporter)
    arrays = compute()
    with reporting_io_errors(kind, path):
        write_npz(path, arrays)
    return arrays
