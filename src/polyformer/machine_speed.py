"""How fast a common machine is: the rates behind every estimate of time.

Each figure is an order of magnitude on an idle server of two cores: good for choosing between two ways and for warning
of hours, not for a clock. ``python -m benchmarks.machine_speed`` measures the figures on the machine at hand and prints
them beside the values that are assumed here.
"""

from __future__ import annotations

__all__ = [
    "CACHE_BYTES",
    "CACHE_LINE",
    "COLUMN_VALUES_PER_SECOND",
    "DENSE_PRODUCTS_PER_SECOND",
    "DISK_BYTES_PER_SECOND",
    "EIGENVECTOR_STEPS_PER_SECOND",
    "FAR_LINES_PER_SECOND",
    "LANCZOS_STEPS_PER_SECOND",
    "NEAR_LINES_PER_SECOND",
    "SECONDS_PER_NODE2VEC_STEP",
    "SECONDS_PER_SAMPLED_NEIGHBOURHOOD",
    "SECONDS_PER_WALK_ENTRY",
    "SPARSE_PRODUCTS_PER_SECOND",
    "START_SECONDS",
]

CACHE_LINE = 64
"""Bytes of a cache line."""

CACHE_BYTES = 32 << 20
"""What the caches of a processor hold."""

FAR_LINES_PER_SECOND = 25e6
"""Cache lines that one thread gathers at random from large memory, with huge pages."""

NEAR_LINES_PER_SECOND = 250e6
"""Cache lines that one thread gathers at random from what the caches hold."""

DISK_BYTES_PER_SECOND = 1e9
"""Bytes that a disk reads or writes in order."""

COLUMN_VALUES_PER_SECOND = 4e8
"""Values that one thread takes out of rows to form columns."""

DENSE_PRODUCTS_PER_SECOND = 3e10
"""Multiply-adds of dense float32 matrices."""

SPARSE_PRODUCTS_PER_SECOND = 3e9
"""Multiply-adds of a sparse matrix with a dense one."""

EIGENVECTOR_STEPS_PER_SECOND = 8e9
"""LAPACK finds all eigenvectors of an N × N matrix in N³ of these steps; more cores help little."""

LANCZOS_STEPS_PER_SECOND = 5e7
"""Lanczos finds n eigenvectors of an N × N matrix in N n² of these steps: it orthogonalises 2n vectors repeatedly."""

SECONDS_PER_WALK_ENTRY = 3e-9
"""Scaling an entry of a vector of return probabilities and adding it to the sums of two steps."""

SECONDS_PER_NODE2VEC_STEP = 4e-6
"""Training on one step of a walk with vectors of 16 channels."""

SECONDS_PER_SAMPLED_NEIGHBOURHOOD = 2e-4
"""Sampling the nodes at one distance from one node."""

START_SECONDS = 5.0
"""Starting a process that imports torch and loads a small graph."""
