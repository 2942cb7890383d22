"""Spectral and positional encodings of a graph's nodes, made from its structure alone."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.machine import require_memory
from polyformer.machine_speed import EIGENVECTOR_STEPS_PER_SECOND, LANCZOS_STEPS_PER_SECOND, SECONDS_PER_WALK_ENTRY
from polyformer.models.contract import Workload
from polyformer.models.parts.precomputed import Effort, precomputed
from polyformer.operators import Operator
from polyformer.propagation.estimates import seconds_of_hops
from polyformer.propagation.kernel import FASTEST_WIDTH
from polyformer.propagation.recurrences import Propagator
from polyformer.reporter import SILENT, Reporter

__all__ = ["eigenpairs", "laplacian_encoding", "return_probabilities"]

_DENSE_NODES = 500
_TOLERANCE = 1e-6


def eigenpairs(
    graph: Graph, count: int | None, workload: Workload, reporter: Reporter = SILENT
) -> tuple[np.ndarray, np.ndarray]:
    r"""Eigenvalues λ and eigenvectors U of :math:`\hat L`, ascending: (n,), (N, n) float32.

    All eigenpairs, in O(N³) time and O(N²) memory, or ``count`` of them, half from each end of the spectrum.
    """
    num_nodes = graph.num_nodes
    if count is None or count >= num_nodes:
        # LAPACK's divide and conquer holds the matrix and twice its size besides.
        advice = "Set num_eigenpairs, e.g. to 3000, to use those at both ends of the spectrum."
        what, size, seconds = f"All eigenvectors of {num_nodes:,} nodes", 12.0 * num_nodes**2, _dense_seconds(num_nodes)
        count = None
    else:
        advice = "Lower num_eigenpairs."
        what, size = f"{count:,} eigenvectors of {num_nodes:,} nodes", 32.0 * count * num_nodes
        seconds = _extreme_seconds(num_nodes, (count + 1) // 2) + _extreme_seconds(num_nodes, count // 2)
    require_memory(what, 4.0 * num_nodes * (count or num_nodes), advice, workload.memory)

    def compute() -> dict[str, np.ndarray]:
        values, vectors = _decompose(Operator(graph), count)
        return {"eigenvalues": values.astype(np.float32), "eigenvectors": vectors.astype(np.float32)}

    arrays = precomputed(
        "eigenpairs", graph, {"count": count}, compute, Effort(what, seconds, size, advice, workload), reporter
    )
    reporter.share("eigenvectors", 1.0)
    return arrays["eigenvalues"], arrays["eigenvectors"]


def _decompose(operator: Operator, count: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, ascending, and eigenvectors of L̂: all of them, or ``count``, half from each end."""
    if count is None:
        # In LAPACK's order and in place, as the estimate of memory allows for no copy.
        dense = operator.to_scipy().toarray(order="F")
        np.negative(dense, out=dense)
        dense[np.diag_indices_from(dense)] += 1.0
        return scipy.linalg.eigh(dense, overwrite_a=True, check_finite=False, driver="evd")
    low, high = _extreme(operator, (count + 1) // 2, "LA"), _extreme(operator, count // 2, "SA")
    mu, vectors = np.concatenate([low[0], high[0]]), np.concatenate([low[1], high[1]], axis=1)
    order = np.argsort(1 - mu)
    return (1 - mu)[order], vectors[:, order]


def _dense_seconds(num_nodes: int) -> float:
    """Seconds that LAPACK takes for all eigenvectors."""
    return num_nodes**3 / EIGENVECTOR_STEPS_PER_SECOND


def _extreme_seconds(num_nodes: int, count: int) -> float:
    """About how many seconds :func:`_extreme` takes."""
    if _is_dense(num_nodes, count):
        return _dense_seconds(num_nodes)
    return num_nodes * count**2 / LANCZOS_STEPS_PER_SECOND


def _is_dense(num_nodes: int, count: int) -> bool:
    """Whether it is faster to compute all eigenvectors than some."""
    return num_nodes <= max(_DENSE_NODES, 2 * count)


def _extreme(operator: Operator, count: int, which: str) -> tuple[np.ndarray, np.ndarray]:
    """The ``count`` largest (LA) or smallest (SA) eigenvalues of P and their vectors; the same in every call."""
    if count == 0:
        return np.empty(0), np.empty((operator.num_nodes, 0))
    if _is_dense(operator.num_nodes, count):
        values, vectors = np.linalg.eigh(operator.to_scipy(np.float64).toarray())
        return (values[-count:], vectors[:, -count:]) if which == "LA" else (values[:count], vectors[:, :count])
    start = np.random.default_rng(0).standard_normal(operator.num_nodes)
    try:
        values, vectors = eigsh(operator.to_scipy(np.float64), count, which=which, v0=start, tol=_TOLERANCE)
    except ArpackNoConvergence:
        raise InvalidParameter(
            f"The {count} eigenvectors asked for did not converge on this graph. Ask for fewer or for all."
        ) from None
    return values, vectors


def laplacian_encoding(graph: Graph, channels: int, workload: Workload, reporter: Reporter = SILENT) -> np.ndarray:
    r"""Eigenvectors of the smallest eigenvalues of :math:`\hat L` but the first: (N, channels) float32.

    Each vector's largest entry is made positive; columns beyond N - 1 are zero. O(channels |E|) a Lanczos step.
    """
    if channels == 0:
        return np.empty((graph.num_nodes, 0), np.float32)

    def compute() -> dict[str, np.ndarray]:
        count = min(channels + 1, graph.num_nodes)
        values, vectors = _extreme(Operator(graph), count, "LA")
        vectors = vectors[:, np.argsort(-values)][:, 1:]
        if vectors.size:
            peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
            vectors = vectors * np.sign(peaks)
        encoding = np.zeros((graph.num_nodes, channels), np.float32)
        encoding[:, : vectors.shape[1]] = vectors
        return {"encoding": encoding}

    effort = Effort(
        f"{channels:,} eigenvectors of {graph.num_nodes:,} nodes",
        _extreme_seconds(graph.num_nodes, channels + 1),
        24.0 * (channels + 10) * graph.num_nodes,  # Lanczos holds twice as many vectors as it computes, at least 20
        "Lower positional_channels.",
        workload,
    )
    return precomputed("laplacian", graph, {"channels": channels}, compute, effort, reporter)["encoding"]


def return_probabilities(graph: Graph, steps: int, workload: Workload, reporter: Reporter = SILENT) -> np.ndarray:
    r"""The probability that a random walk is back after 2, …, ``steps`` steps: (N, steps - 1) float32.

    :math:`((D^{-1} A)^s)_{ii} = (\hat A^s)_{ii}`, and with :math:`u_s = \hat A^s e_i` the
    probability is :math:`u_s^T u_s` after 2s and :math:`u_s^T u_{s+1}` after 2s + 1 steps. So there are half as many
    products as steps, for one block of nodes after the other. O(steps N |E|).
    """

    def compute() -> dict[str, np.ndarray]:
        propagator, width, count = Propagator(Operator(graph)), FASTEST_WIDTH, graph.num_nodes
        result = np.zeros((count, steps - 1), np.float32)
        for start in range(0, count, width):
            nodes = np.arange(start, min(start + width, count))
            before = np.zeros((count, width), np.float32)
            before[nodes, nodes - start] = 1.0
            here = np.empty_like(before)
            for walked in range(1, steps + 1):  # the length 2s or 2s + 1 of the walk; before is u_s, here u_{s+1}
                if walked % 2:
                    scaled = before * propagator.scaling[:, None]
                    propagator.matrix.product(scaled, here, row_scale=propagator.row_scale)
                else:
                    before, here = here, before
                if walked > 1:
                    pair = (before, here) if walked % 2 else (before, before)
                    result[nodes, walked - 2] = np.einsum("nc,nc->c", *pair)[: len(nodes)]
            reporter.share("return probabilities", (int(nodes[-1]) + 1) / count)
        return {"probabilities": result}

    effort = Effort(
        f"Return probabilities of {graph.num_nodes:,} nodes",
        _return_seconds(graph, steps),
        4.0 * graph.num_nodes * (steps + 3 * FASTEST_WIDTH),
        "Lower walk_steps or use another model, e.g. gprgnn or bernnet.",
        workload,
    )
    return precomputed("returns", graph, {"steps": steps}, compute, effort, reporter)["probabilities"]


def _return_seconds(graph: Graph, steps: int) -> float:
    """Seconds of the sparse products and of the work on each entry of the vectors."""
    products = -(-steps // 2)
    entries = products * graph.num_nodes**2
    return seconds_of_hops(graph, products, graph.num_nodes, fixed=True) + SECONDS_PER_WALK_ENTRY * entries
