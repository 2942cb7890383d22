"""The in-memory engine: graph and features in memory, one block of columns after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph_checks import Features
from polyformer.machine import require_memory
from polyformer.operators import Operator
from polyformer.propagation.engine import Engine, EngineCost, TokenJob
from polyformer.propagation.estimates import seconds_of_hops
from polyformer.propagation.kernel import FASTEST_WIDTH
from polyformer.propagation.recurrences import Propagator, blocks_of, padded, part_of

__all__ = ["MemoryEngine", "column_reader"]

# The optimal basis needs K+3 float64 buffers instead of two float32: narrow blocks keep its memory as low as theirs.
_OPTIMAL_WIDTH = 8


class MemoryEngine(Engine):
    """Holds two float32 buffers of N × 32 for fixed bases, K+3 of N × 8 in float64 for optimal, and one for output."""

    def cost(self, operator: Operator, order: int, features: Features, fixed: bool) -> EngineCost:
        buffers = 3 * FASTEST_WIDTH if fixed else 2 * (order + 4) * _OPTIMAL_WIDTH
        turned = 0 if isinstance(features, np.ndarray | ScaledFeatures) else 8 * features.nnz
        needed = 4 * operator.num_nodes * (buffers + 6) + turned
        if self.memory is not None:
            require_memory("Computing the tokens", needed, "Take --engine disk, or raise --memory.", self.memory)
        return EngineCost(needed, seconds_of_hops(operator.graph, order, features.shape[1], fixed))

    def chebyshev(self, job: TokenJob) -> None:
        order, nodes = job.order, job.nodes
        propagator, columns = Propagator(job.operator), column_reader(job.features)
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
        propagator, columns = Propagator(job.operator, np.float64), column_reader(job.features)
        for block, width in blocks_of(job.out.missing(), _OPTIMAL_WIDTH):
            used = block.stop - block.start
            basis, recurrence = propagator.lanczos(padded(columns(block), width, np.float64), job.order)
            with job.out.block(block) as out:
                for k in range(job.order + 1):
                    out.put(k, (basis[k] if job.nodes is None else basis[k, job.nodes])[:, :used])
                out.recurrence = part_of(recurrence, used)
            del basis  # free it before the next block makes its own
            job.tell(block.stop / job.features.shape[1])


def column_reader(features: Features) -> Callable[[slice], np.ndarray]:
    """A reader of dense column blocks; it sorts sparse features by column once, as a block then reads few entries."""
    if isinstance(features, ScaledFeatures):
        return features.columns
    if isinstance(features, np.ndarray):
        return lambda block: features[:, block]
    by_column = sp.csc_matrix(features)
    return lambda block: by_column[:, block].toarray()
