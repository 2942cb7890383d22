"""The engine for graphs larger than memory: it holds two buffers of columns and reads graph and features from disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from polyformer.arrays import aligned_empty
from polyformer.errors import InvalidParameter
from polyformer.feature_scaling import ScaledFeatures
from polyformer.graph_checks import Features
from polyformer.machine import require_memory, usable_memory
from polyformer.machine_speed import COLUMN_VALUES_PER_SECOND, DISK_BYTES_PER_SECOND
from polyformer.operators import Operator
from polyformer.propagation.engine import Engine, EngineCost, TokenJob
from polyformer.propagation.estimates import seconds_of_hops
from polyformer.propagation.feature_columns import FeatureColumns
from polyformer.propagation.kernel import KERNEL_WIDTHS, multiplies_halves
from polyformer.propagation.recurrences import blocks_of, lanczos, part_of
from polyformer.propagation.streamed import StreamedAdjacency
from polyformer.reporter import Reporter
from polyformer.stores.sinks import TokenBlock

__all__ = ["BUFFERS", "BlockPlan", "DiskEngine", "seconds_of_reading"]

BUFFERS = ("float32", "float16")
"""The types of number that the buffers of a fixed basis may hold."""

_CHUNK_BYTES = (1 << 20, 1 << 26)


@dataclass(frozen=True)
class BlockPlan:
    """How a job is cut: columns in a block, feature columns held in memory, bytes of a chunk, and the memory in all."""

    width: int
    held: int
    chunk_bytes: int
    memory: int


class DiskEngine(Engine):
    """Holds two float32 buffers of N × c, c = 64, 32, 16 or 8 as memory allows; for optimal K+3 of N × 8 in float64.

    Besides, the engine holds the scaling of every node, two chunks of the index array and a piece of the features.

    Args:
        memory: see :class:`~polyformer.propagation.engine.Engine`.
        buffers: ``float16`` keeps both buffers in half precision: twice the columns in a block, half as many gathers.
            Sums are float32, but what is kept is rounded to 11 bits: tokens of order k are off by about
            :math:`3 · 10^{-4} (k + 1)` of their size, and features must lie within ±65,504. Needs the native kernel.
    """

    def __init__(self, memory: int | None = None, buffers: str = "float32") -> None:
        super().__init__(memory)
        if buffers not in BUFFERS:
            raise InvalidParameter(f"'buffers' must be {' or '.join(BUFFERS)}. Got '{buffers}'.")
        if buffers == "float16" and not multiplies_halves():
            raise InvalidParameter(
                "'buffers' must be float32 without a native kernel that converts halves. Got float16."
            )
        self.buffers = np.dtype(buffers)

    def about(self) -> dict[str, str]:
        return {} if self.buffers == np.float32 else {"buffers": self.buffers.name}

    def cost(self, operator: Operator, order: int, features: Features, fixed: bool) -> EngineCost:
        plan = self.plan(operator, order, features, fixed, features.shape[1])
        blocks, passes = -(-features.shape[1] // plan.width), -(-features.shape[1] // (plan.held or plan.width))
        reads = seconds_of_reading(operator, order * blocks, features, passes)
        seconds = seconds_of_hops(operator.graph, order, features.shape[1], fixed, itemsize=self.buffers.itemsize)
        return EngineCost(plan.memory, max(seconds, reads) + _turning_seconds(features))

    def plan(self, operator: Operator, order: int, features: Features, fixed: bool, num_columns: int) -> BlockPlan:
        """Cut a job of ``num_columns`` columns to fit the memory; refuse it if no block fits."""
        limit = usable_memory() if self.memory is None else self.memory
        num_nodes = operator.num_nodes
        chunk = min(max(limit // 64, _CHUNK_BYTES[0]), _CHUNK_BYTES[1])
        longest = operator.graph.longest_row * (4 if operator.graph.weights is None else 8)
        besides = 8 * num_nodes + 6 * chunk + 2 * longest
        useful = next((w for w in reversed(KERNEL_WIDTHS) if w >= num_columns), KERNEL_WIDTHS[0])
        widths = [w for w in KERNEL_WIDTHS if w <= useful] if fixed else [KERNEL_WIDTHS[-1]]
        if not fixed and self.buffers != np.float32:
            raise InvalidParameter("'buffers' must be float32 for the optimal basis, which is unstable. Got float16.")
        per_column = (2 * self.buffers.itemsize if fixed else (order + 3) * 8) * num_nodes
        for width in widths:
            needed = besides + per_column * width
            if needed <= limit:
                break
        else:
            advice = f"Raise --memory{'' if fixed else ', lower --order, or take a fixed basis'}."
            require_memory("Computing the tokens", needed, advice, limit)
        # The memory that is left holds features of further blocks, so that their file is read less often.
        column_bytes = num_nodes * _itemsize(features)
        fitting = min(limit - needed, limit // 2) // column_bytes
        columns_in_memory = min(num_columns, fitting // width * width)
        if columns_in_memory <= width:
            return BlockPlan(width, 0, chunk, needed)
        return BlockPlan(width, columns_in_memory, chunk, needed + columns_in_memory * column_bytes)

    def chebyshev(self, job: TokenJob) -> None:
        r"""Deliver T_k(M) X by :math:`u_{k+1} = -2 S^2 (A + cI) u_k - u_{k-1}` on :math:`u_k = S\,T_k(M) x`."""
        operator, order = job.operator, job.order
        share = _Progress(job, order + 1)
        plan = self.plan(operator, order, job.features, True, share.columns_left)
        adjacency, scaling = StreamedAdjacency(operator.graph, plan.chunk_bytes), operator.scaling
        size = operator.num_nodes * plan.width
        rooms = [aligned_empty((size,), self.buffers) for _ in range(2 if order else 1)]
        with FeatureColumns(job.features, plan.held, plan.chunk_bytes) as features:
            for block, width in share.blocks(plan.width):
                used = block.stop - block.start
                buffers = [room[: operator.num_nodes * width].reshape(-1, width) for room in rooms]
                with np.errstate(over="ignore"):  # what does not fit halves is refused below
                    features.fill(block, buffers[0])
                with job.out.block(block) as out:
                    _put(out, 0, buffers[0], used, job.nodes, None, plan.chunk_bytes)
                    factor = self._range_factor(buffers[0], plan.chunk_bytes)
                    _scale_rows(buffers[0], scaling, plan.chunk_bytes, factor)
                    share.hop(1)
                    for k in range(1, order + 1):
                        current, last = buffers[(k - 1) % 2], buffers[k % 2]
                        adjacency.product(
                            current,
                            last,
                            row_scale=scaling,
                            squared=True,
                            loop=float(operator.self_loops),
                            alpha=-1.0 if k == 1 else -2.0,
                            previous=None if k == 1 else last,
                            beta=-1.0,
                            reporter=share.hop_reporter(),
                        )
                        _put(out, k, last, used, job.nodes, scaling, plan.chunk_bytes, factor)
                        share.hop(k + 1)
                    self._check_range(buffers, plan.chunk_bytes)

    def _range_factor(self, x: np.ndarray, piece_bytes: int) -> float:
        """The power of two that brings the largest number to 256: halves end at 65,504, and below 6e-5 lose bits."""
        if self.buffers == np.float32:
            return 1.0
        self._check_range([x], piece_bytes)
        largest = max(float(np.abs(piece).max(initial=0.0)) for piece in _pieces(x, piece_bytes))
        return 1.0 if largest == 0 else 2.0 ** (8 - math.frexp(largest)[1])

    def _check_range(self, buffers: list[np.ndarray], piece_bytes: int) -> None:
        """Refuse what left the range of halves: it stays infinite or no number from hop to hop."""
        if self.buffers == np.float32:
            return
        if not all(np.isfinite(piece).all() for x in buffers for piece in _pieces(x, piece_bytes)):
            raise InvalidParameter(
                "'buffers' must be float32 for these features: numbers above 65,504 do not fit float16."
            )

    def optimal(self, job: TokenJob) -> None:
        operator, order = job.operator, job.order
        share = _Progress(job, order)
        plan = self.plan(operator, order, job.features, False, share.columns_left)
        adjacency, scaling = StreamedAdjacency(operator.graph, plan.chunk_bytes), operator.scaling
        loop = float(operator.self_loops)

        def multiply(x: np.ndarray, out: np.ndarray) -> None:
            adjacency.product(x, out, row_scale=scaling, loop=loop, reporter=share.hop_reporter())
            share.hop(share.done + 1)

        with FeatureColumns(job.features, plan.held, plan.chunk_bytes) as features:
            for block, width in share.blocks(plan.width):
                used = block.stop - block.start
                x = aligned_empty((operator.num_nodes, width), np.float64)
                features.fill(block, x)
                basis, recurrence = lanczos(multiply, scaling, x, order)
                with job.out.block(block) as out:
                    for k in range(order + 1):
                        _put(out, k, basis[k], used, job.nodes, None, plan.chunk_bytes)
                    out.recurrence = part_of(recurrence, used)
                del x, basis  # free them before the next block makes its own


class _Progress:
    """Counts the share of the work that is done: blocks of columns, and hops within a block."""

    def __init__(self, job: TokenJob, hops: int) -> None:
        self.job, self.hops, self.columns = job, max(1, hops), job.features.shape[1]
        self.missing = job.out.missing()
        self.columns_left = sum(part.stop - part.start for part in self.missing)
        self.finished = self.columns - self.columns_left
        self.done = self.used = 0

    def blocks(self, widest: int) -> Iterator[tuple[slice, int]]:
        self._tell()
        for block, width in blocks_of(self.missing, widest):
            self.done, self.used = 0, block.stop - block.start
            yield block, width
            self.finished += self.used
            self.used = 0
            self._tell()

    def hop(self, done: int) -> None:
        self.done = done
        self._tell()

    def hop_reporter(self) -> Reporter:
        """A reporter for the product of the next hop, whose share counts as a part of the whole job."""
        return self.job.reporter.part(self._share(self.done), self._share(self.done + 1))

    def _tell(self) -> None:
        self.job.tell(self._share(self.done))

    def _share(self, hops: int) -> float:
        return (self.finished + self.used * min(1.0, hops / self.hops)) / self.columns


def _put(
    out: TokenBlock,
    order: int,
    u: np.ndarray,
    used: int,
    nodes: np.ndarray | None,
    scaling: np.ndarray | None,
    piece_bytes: int,
    factor: float = 1.0,
) -> None:
    """Deliver T_k x = u / (factor · S) of the requested nodes, some rows at a time, in float32."""
    count = len(u) if nodes is None else len(nodes)
    step = max(1, piece_bytes // (u.shape[1] * u.itemsize))
    for begin in range(0, count, step):
        rows = slice(begin, min(count, begin + step)) if nodes is None else nodes[begin : begin + step]
        values = u[rows, :used]
        if values.dtype == np.float16:
            values = values.astype(np.float32)
        out.put(
            order, values if scaling is None else values * (1 / (factor * scaling[rows, None])).astype(values.dtype)
        )


def _scale_rows(x: np.ndarray, scaling: np.ndarray, piece_bytes: int, factor: float) -> None:
    """x <- factor · S x, piece by piece, so that the rounded scaling of all nodes need not be held."""
    step = max(1, piece_bytes // 64)
    for begin in range(0, len(x), step):
        scale = (factor * scaling[begin : begin + step, None]).astype(np.float32)
        np.multiply(x[begin : begin + step], scale, out=x[begin : begin + step], casting="same_kind")


def _pieces(x: np.ndarray, piece_bytes: int) -> Iterator[np.ndarray]:
    step = max(1, piece_bytes // (x.shape[1] * x.itemsize))
    for begin in range(0, len(x), step):
        yield x[begin : begin + step]


def seconds_of_reading(operator: Operator, hops: int, features: Features, passes: int = 1) -> float:
    """About how long it takes to read the adjacency once a hop and the features once a pass."""
    return (_index_bytes(operator) * hops + _file_bytes(features) * passes) / DISK_BYTES_PER_SECOND


def _itemsize(features: Features) -> int:
    return int(features.dtype.itemsize) if isinstance(features, np.ndarray | ScaledFeatures) else 4


def _file_bytes(features: Features) -> int:
    return int(features.nbytes) if isinstance(features, np.ndarray | ScaledFeatures) else 8 * features.nnz


def _index_bytes(operator: Operator) -> int:
    graph = operator.graph
    return 8 * len(graph.indptr) + len(graph.indices) * (4 if graph.weights is None else 8)


def _turning_seconds(features: Features) -> float:
    """About how long it takes to take columns out of rows."""
    return float(np.prod(features.shape)) / COLUMN_VALUES_PER_SECOND
