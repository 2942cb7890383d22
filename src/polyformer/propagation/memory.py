"""The in-memory engine: features and tokens in memory, one block of columns after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from polyformer.bases.optimal import Recurrence
from polyformer.graph_checks import Features
from polyformer.propagation.engine import Engine, TokenJob
from polyformer.propagation.kernel import FASTEST_WIDTH
from polyformer.propagation.recurrences import Propagator, column_blocks, padded

__all__ = ["MemoryEngine"]

# The optimal basis needs K+1 double buffers instead of two single: narrow blocks keep its memory near the others'.
_OPTIMAL_WIDTH = 8


class MemoryEngine(Engine):
    """Two float32 buffers of N × 32 for fixed bases, K+4 float64 ones of N × 8 for the optimal basis."""

    def memory_needed(self, num_nodes: int, order: int, features: Features, fixed: bool) -> int:
        buffers = 2 * FASTEST_WIDTH if fixed else 2 * (order + 4) * _OPTIMAL_WIDTH
        turned = 0 if isinstance(features, np.ndarray) else 8 * features.nnz
        return 4 * num_nodes * buffers + turned

    def chebyshev(self, job: TokenJob) -> None:
        order, out, nodes = job.order, job.out, job.nodes
        propagator, columns = Propagator(job.operator), _columns(job.features)
        total = job.features.shape[1] * (order + 1)
        for block, width in column_blocks(job.features.shape[1]):
            used = block.stop - block.start
            views: list[np.ndarray | None]
            views = [out[:, k, block] if nodes is None else None for k in range(order + 1)]
            hops = propagator.chebyshev(padded(columns(block), width, np.float32), order, emit=views.__getitem__)
            for k, scaled in enumerate(hops):
                if nodes is not None:
                    out[:, k, block] = scaled[nodes, :used] * propagator.inverse[nodes, None]
                if job.progress is not None:
                    job.progress((block.start * (order + 1) + (k + 1) * used) / total)

    def optimal(self, job: TokenJob) -> Recurrence:
        order, out, nodes = job.order, job.out, job.nodes
        propagator, columns = Propagator(job.operator, np.float64), _columns(job.features)
        parts: list[Recurrence] = []
        for block, width in column_blocks(job.features.shape[1], widest=_OPTIMAL_WIDTH):
            used = block.stop - block.start
            basis, recurrence = propagator.lanczos(padded(columns(block), width, np.float64), order)
            for k in range(order + 1):
                out[:, k, block] = (basis[k] if nodes is None else basis[k, nodes])[:, :used]
            parts.append(Recurrence(recurrence.norm[:used], recurrence.gamma[:, :used], recurrence.beta[:, :used]))
            if job.progress is not None:
                job.progress(block.stop / job.features.shape[1])
        return Recurrence(
            np.concatenate([part.norm for part in parts]),
            np.concatenate([part.gamma for part in parts], axis=1),
            np.concatenate([part.beta for part in parts], axis=1),
        )


def _columns(features: Features) -> Callable[[slice], np.ndarray]:
    """A reader of dense column blocks; sparse features are turned once, so that a block costs only its own entries."""
    if isinstance(features, np.ndarray):
        return lambda block: features[:, block]
    by_column = sp.csc_matrix(features)
    return lambda block: by_column[:, block].toarray()
