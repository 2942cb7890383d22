"""What is computed once per graph and kept on disk: eigenvectors, return probabilities, node2vec vectors.

A file is named by all that its content depends on, so it is never out of date, and appears whole. A damaged one is
computed again. What takes long says so before it starts; what would take hours or does not fit is refused.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyformer.datasets.sources import precomputed_root
from polyformer.errors import OutOfResources
from polyformer.files import reporting_io_errors, write_whole
from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.models.contract import Workload
from polyformer.progress import format_seconds

__all__ = ["Effort", "precomputed"]

FORMAT = 1

MOST_SECONDS = 7200.0
_WORTH_TELLING = 10.0


@dataclass(frozen=True)
class Effort:
    """What a computation takes, by a rough estimate.

    Attributes:
        what: the subject of a sentence, e.g. ``"All eigenvectors of 9,000 nodes"``.
        size: bytes.
        advice: the next step where it takes too much, a sentence.
        workload: how much memory there may be, and who is told where it takes long.
    """

    what: str
    seconds: float
    size: float
    advice: str
    workload: Workload

    def announce(self) -> None:
        """Tell what is about to be computed; refuse what does not fit or would take hours."""
        require_memory(self.what, self.size, self.advice, self.workload.memory)
        if self.seconds > MOST_SECONDS:
            raise OutOfResources(
                f"{self.what} would take about {format_seconds(self.seconds)} to compute, more than the "
                f"{format_seconds(MOST_SECONDS)} that are allowed. {self.advice}"
            )
        if self.workload.report is not None and self.seconds > _WORTH_TELLING:
            self.workload.report(f"{self.what}: computed once for this graph, in about {format_seconds(self.seconds)}")


def precomputed(
    kind: str,
    graph: Graph,
    parameters: Mapping[str, Any],
    compute: Callable[[], dict[str, np.ndarray]],
    effort: Effort,
) -> dict[str, np.ndarray]:
    """The arrays that ``compute`` gives, from disk if they were computed before.

    Args:
        kind: what they are, e.g. ``"eigenpairs"``.
        graph: whose structure and weights they depend on; its features they may not depend on.
        parameters: what else they depend on, as JSON values.
        effort: what computing them takes.
    """
    name = json.dumps([FORMAT, kind, graph.structure_fingerprint, dict(parameters)], sort_keys=True)
    path = precomputed_root() / f"{kind}-{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        pass
    effort.announce()
    arrays = compute()
    with reporting_io_errors(kind, path), write_whole(path) as file:
        np.savez(file, allow_pickle=False, **arrays)
    return arrays
