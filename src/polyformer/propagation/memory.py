"""The in-memory engine: graph and features in memory, one block of columns after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph_checks import Features
from polyformer.machine import require_memory
from polyformer.operators import Operator
from polyformer.propagation.engine import Cost, Engine, TokenJob
from polyformer.propagation.estimates import seconds_of_hops
from polyformer.propagation.kernel import FASTEST_WIDTH
from polyformer.propagation.recurrences import Propagator, blocks_of, padded, part_of

__all__ = ["MemoryEngine"]

# The optimal basis needs K+1 double buffers instead of two single: narrow blocks keep its memory near the others'.
_OPTIMAL_WIDTH = 8


class MemoryEngine(Engine):
    """Two float32 buffers of N × 32 for fixed bases, K+3 float64 ones of N × 8 for optimal, and one handed over."""

    def cost(self, operator: Operator, order: int, features: Features, fixed: bool) -> Cost:
        buffers = 3 * FASTEST_WIDTH if fixed else 2 * (order + 4) * _OPTIMAL_WIDTH
        turned = 0 if isinstance(features, np.ndarray | ScaledFeatures) else 8 * features.nnz
        needed = 4 * operator.num_nodes * (buffers + 6) + turned
        if self.memory is not None:
            require_memory("Computing the tokens", needed, "Take --engine disk, or raise --memory.", self.memory)
        return Cost(needed, seconds_of_hops(operator.graph, order, features.shape[1], fixed))

    def chebyshev(self, job: TokenJob) -> None:
        order, nodes = job.order, job.nodes
        propagator, columns = Propagator(job.operator), _columns(job.features)
        total = job.features.shape[1] * (order + 1)
        for block, width in blocks_of(job.out.missing(), FASTEST_WIDTH):
            used = block.stop - block.start
            with job.out.block(block) as out:
                views = [out.view(k) if nodes is None else None for k in range(order + 1)]
                hops = propagator.chebyshev(padded(columns(block), width, np.float32), order, emit=views.__getitem__)
                for k, scaled in enumerate(hops):
                    if views[k] is None:
                        rows = slice(None) if nodes is None else nodes
                        out.put(k, scaled[rows, :used] * propagator.inverse[rows, None])
                    job.tell((block.start * (order + 1) + (k + 1) * used) / total)

    def optimal(self, job: TokenJob) -> None:
        propagator, columns = Propagator(job.operator, np.float64), _columns(job.features)
        for block, width in blocks_of(job.out.missing(), _OPTIMAL_WIDTH):
            used = block.stop - block.start
            basis, recurrence = propagator.lanczos(padded(columns(block), width, np.float64), job.order)
            with job.out.block(block) as out:
                for k in range(job.order + 1):
                    out.put(k, (basis[k] if job.nodes is None else basis[k, job.nodes])[:, :used])
                out.recurrence = part_of(recurrence, used)
            del basis  # before the next block's is made
            job.tell(block.stop / job.features.shape[1])


def _columns(features: Features) -> Callable[[slice], np.ndarray]:
    """A reader of dense column blocks; sparse features are turned once, so that a block costs only its own entries."""
    if isinstance(features, ScaledFeatures):
        return features.columns
    if isinstance(features, np.ndarray):
        return lambda block: features[:, block]
    by_column = sp.csc_matrix(features)
    return lambda block: by_column[:, block].toarray()
