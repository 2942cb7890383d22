"""Every figure of ``polyformer.machine_speed`` measured on this machine: ``python -m benchmarks.machine_speed``."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import eigsh

from polyformer import Graph, machine_speed
from polyformer.models.contract import Workload
from polyformer.models.goat import sample_neighbourhood
from polyformer.models.parts.node2vec import WALK_LENGTH, WALKS, node2vec_encoding
from polyformer.native import num_threads
from polyformer.operators import Operator
from polyformer.propagation.recurrences import Propagator

WIDTH = 16


def main() -> None:
    """Print a row for each figure: what is assumed and what was measured."""
    print("| figure | assumed | measured |\n|---|---|---|")
    for name, measure in MEASUREMENTS.items():
        print(f"| {name} | {getattr(machine_speed, name):.2g} | {measure():.2g} |", flush=True)


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The least time of several."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def random_graph(num_nodes: int) -> Graph:
    return Graph(np.random.default_rng(0).integers(0, num_nodes, (2, 5 * num_nodes)), num_nodes=num_nodes)


def lines_per_second(num_nodes: int) -> float:
    """A product of 16 float32 columns, a cache line a row, on a random graph."""
    graph = random_graph(num_nodes)
    propagator, x = Propagator(Operator(graph)), np.ones((num_nodes, WIDTH), np.float32)
    out = np.empty_like(x)
    taken = seconds(lambda: propagator.matrix.product(x, out, row_scale=propagator.row_scale))
    return len(graph.indices) / taken / num_threads()


def disk_bytes_per_second() -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes"
        path.write_bytes(bytes(1 << 29))
        with path.open("rb", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            room = bytearray(1 << 24)
            started = time.perf_counter()
            while file.readinto(room):
                pass
            return (1 << 29) / (time.perf_counter() - started)


def column_values_per_second() -> float:
    rows = np.ones((1 << 20, 128), np.float32)
    out = np.empty((len(rows), WIDTH), np.float32)

    def turn() -> None:
        for begin in range(0, rows.shape[1], WIDTH):
            out[:] = rows[:, begin : begin + WIDTH]

    return rows.size / seconds(turn)


def dense_products_per_second() -> float:
    a = torch.ones(2000, 2000)
    return 2000**3 / seconds(lambda: a @ a)


def sparse_products_per_second() -> float:
    matrix, x = sp.random(20_000, 20_000, 1e-3, "csr", np.float32, 0), np.ones((20_000, 64), np.float32)
    return matrix.nnz * 64 / seconds(lambda: matrix @ x)


def eigenvector_steps_per_second() -> float:
    matrix = np.random.default_rng(0).standard_normal((1500, 1500)).astype(np.float32)
    return 1500**3 / seconds(lambda: scipy.linalg.eigh(matrix + matrix.T, driver="evd"), 1)


def lanczos_steps_per_second() -> float:
    matrix = Operator(random_graph(10_000)).to_scipy(np.float64)
    return 10_000 * 100**2 / seconds(lambda: eigsh(matrix, 100, which="LA", tol=1e-6), 1)


def seconds_per_walk_entry() -> float:
    x, y = np.ones((200_000, WIDTH), np.float32), np.ones((200_000, 1), np.float32)
    return seconds(lambda: np.einsum("nc,nc->c", x * y, x)) / x.size


def seconds_per_node2vec_step() -> float:
    graph = random_graph(2_000)
    steps = graph.num_nodes * WALKS * WALK_LENGTH
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # computed, not read
        return seconds(lambda: node2vec_encoding(graph, 16, Workload(None, 1)), 1) / steps


def seconds_per_sampled_neighbourhood() -> float:
    graph = random_graph(20_000)
    return seconds(lambda: [list(sample_neighbourhood(graph, node, 2, 10, 0)) for node in range(500)]) / 1000


MEASUREMENTS: dict[str, Callable[[], float]] = {
    "FAR_LINES_PER_SECOND": lambda: lines_per_second(4_000_000),
    "NEAR_LINES_PER_SECOND": lambda: lines_per_second(100_000),
    "DISK_BYTES_PER_SECOND": disk_bytes_per_second,
    "COLUMN_VALUES_PER_SECOND": column_values_per_second,
    "DENSE_PRODUCTS_PER_SECOND": dense_products_per_second,
    "SPARSE_PRODUCTS_PER_SECOND": sparse_products_per_second,
    "EIGENVECTOR_STEPS_PER_SECOND": eigenvector_steps_per_second,
    "LANCZOS_STEPS_PER_SECOND": lanczos_steps_per_second,
    "SECONDS_PER_WALK_ENTRY": seconds_per_walk_entry,
    "SECONDS_PER_NODE2VEC_STEP": seconds_per_node2vec_step,
    "SECONDS_PER_SAMPLED_NEIGHBOURHOOD": seconds_per_sampled_neighbourhood,
}

if __name__ == "__main__":
    main()
