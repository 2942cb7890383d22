r"""Made-up graphs of any size, for tests of scale: ``synthetic:nodes=1e6,edges=15e6,classes=40``.

Degrees follow a power law, the label of a node is its community, and features depend on the label. Rows of the
adjacency are computed in order, so that nothing is sorted. Whatever the number of edges, memory holds 12 bytes a node
while edges are written, 16 while labels are written, and about 100 MB of buffers; see ``native/synthetic.cpp``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from polyformer.errors import InvalidParameter, MissingDependency
from polyformer.files import NpyWriter, require_disk
from polyformer.graph import Graph
from polyformer.importing.directory import import_folder, write_manifest
from polyformer.importing.options import ImportSummary
from polyformer.importing.synthetic_options import SyntheticOptions
from polyformer.native import call, is_available
from polyformer.reporter import SILENT, Reporter
from polyformer.splits import uniform_split
from polyformer.tasks import Task

__all__ = ["is_synthetic", "write_synthetic"]

_TAIL = 1.5  # degrees d have P(degree > d) ~ d^-1.5, i.e. a density of exponent 2.5
_LARGEST_SHARE = 400  # no degree is larger than nodes / 400: in papers100M the largest is 1/440
_ROWS = 1 << 20
_ENTRIES = 1 << 24
_SAMPLE = 1 << 19
_CORRECTIONS = 8  # one or two are enough if few edges repeat
_FEATURE_BYTES = 1 << 25


def is_synthetic(source: str | Path) -> bool:
    """Whether a source is a spec of a made-up graph, and not a folder of that name."""
    return str(source).partition(":")[0] == "synthetic" and not Path(source).exists()


def write_synthetic(spec: str, destination: Path, reporter: Reporter = SILENT) -> ImportSummary:
    """Write the graph that ``spec`` describes as a graph directory."""
    started = time.perf_counter()
    options = SyntheticOptions.parse(spec)
    with import_folder(destination) as folder:
        require_disk("This graph needs", options.disk_bytes, destination.parent, "Free some or choose another disk.")
        maker = _Maker(options)
        entries, isolated = maker.write_edges(folder, reporter)
        maker.release()
        if options.features:
            maker.write_features(folder, reporter)
        task = maker.task()
        write_manifest(folder, options.nodes, entries, options.features, task)
    return ImportSummary(
        destination=destination,
        format="synthetic",
        matched=(),
        notes=(),
        num_nodes=options.nodes,
        num_edges=entries // 2,
        num_features=options.features,
        num_classes=options.classes,
        weighted=False,
        metric=task.metric,
        protocol=task.protocol,
        num_splits=len(task.splits),
        edges_read=entries // 2,
        self_loops=0,
        isolated_nodes=isolated,
        seconds=time.perf_counter() - started,
    )


class _Maker:
    """Plans the degree of each position and lets native routines turn degrees into rows."""

    def __init__(self, options: SyntheticOptions) -> None:
        if not is_available():
            raise MissingDependency(
                "Synthetic graphs are made by the native kernel, which is not built. Install a C++ compiler and "
                "reinstall polyformer."
            )
        self.options = options
        self.first = _community_bounds(options)
        self.stubs = np.empty(0, np.int64)
        mean = target_mean = 2 * options.edges / options.nodes
        self._plan(mean)
        # Repeated edges and loops are dropped; a sample of rows tells how many, and more stubs replace them.
        for _ in range(_CORRECTIONS):
            lengths, _, planned = self._rows(0, min(options.nodes, _SAMPLE))
            kept = int(lengths.sum()) / max(planned, 1)
            reached = kept * int(self.stubs[-1]) / options.nodes
            if abs(reached / target_mean - 1) < 2e-3:
                break
            mean *= target_mean / max(reached, target_mean / 2)
            if mean > 4 * target_mean:
                raise InvalidParameter(
                    f"'edges' of a synthetic graph must fit into its communities: {options.edges} are too many for "
                    f"{options.nodes} nodes in {options.classes} with homophily {options.homophily}. Lower one of them."
                )
            self._plan(mean)

    def _plan(self, mean: float) -> None:
        """Draw degrees with this mean, as the number of stubs before each position, and an index of the stubs."""
        del self.stubs
        options = self.options
        self.stubs = _planned_degrees(options, mean)
        sizes = self.stubs[self.first[1:]] - self.stubs[self.first[:-1]]
        self.within = 2 * (options.homophily * sizes / 2).astype(np.int64)
        total = int(self.stubs[-1])
        self.shift = max(0, int(np.log2(max(total, 1) / options.nodes)) + 1)
        self.owners = np.empty((total >> self.shift) + 1, np.int32)
        call("synthetic_owners", nodes=options.nodes, stubs=self.stubs, shift=self.shift, owners=self.owners)

    def release(self) -> None:
        """Free the memory that only edges need."""
        self.stubs = np.empty(0, np.int64)
        self.owners = np.empty(0, np.int32)

    def _rows(self, begin: int, most_rows: int, room: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, int]:
        """Lengths and columns of the rows from ``begin`` on that fit into ``room``, and their number of stubs."""
        indices = np.empty(max(_ENTRIES, self.options.nodes), np.int32) if room is None else room
        lengths, counts = np.empty(most_rows, np.int32), np.empty(2, np.int64)
        call(
            "synthetic_rows",
            nodes=self.options.nodes,
            communities=self.options.classes,
            first=self.first,
            stubs=self.stubs,
            within=self.within,
            owners=self.owners,
            shift=self.shift,
            seed=self.options.seed,
            begin=begin,
            most_rows=most_rows,
            indices=indices,
            capacity=len(indices),
            lengths=lengths,
            counts=counts,
        )
        rows, planned = map(int, counts)
        assert rows > 0, "a row did not fit"
        lengths = lengths[:rows]
        return lengths, indices[: int(lengths.sum())], planned

    def write_edges(self, folder: Path, reporter: Reporter) -> tuple[int, int]:
        """Write ``indptr.npy`` and ``indices.npy``; returns the number of entries and of empty rows."""
        entries = isolated = row = 0
        nodes = self.options.nodes
        # One buffer is filled while the other is written.
        rooms = [np.empty(max(_ENTRIES, nodes // 64), np.int32) for _ in range(2)]
        with (
            NpyWriter(folder / "indptr.npy", np.int64) as indptr,
            NpyWriter(folder / "indices.npy", np.int32) as indices,
            ThreadPoolExecutor(1) as writer,
        ):
            indptr.append(np.zeros(1, np.int64))
            pending = None
            while row < nodes:
                lengths, columns, _ = self._rows(row, min(_ROWS, nodes - row), rooms[0])
                rooms.reverse()
                ends = np.cumsum(lengths, dtype=np.int64)
                ends += entries
                if pending is not None:
                    pending.result()
                pending = writer.submit(indices.append, columns)
                indptr.append(ends)
                row, entries = row + len(lengths), int(ends[-1])
                isolated += int(np.count_nonzero(lengths == 0))
                reporter.stage("writing edges", row, nodes)
            if pending is not None:
                pending.result()
        return entries, isolated

    def write_features(self, folder: Path, reporter: Reporter) -> None:
        """Write ``features.npy``, row after row."""
        options = self.options
        centres = np.random.default_rng(options.seed).standard_normal((options.classes, options.features), np.float32)
        length = 1 / np.sqrt(1 + options.noise**2)
        rows = max(1, _FEATURE_BYTES // (4 * options.features))
        blocks = [np.empty((rows, options.features), np.float32) for _ in range(2)]
        with (
            NpyWriter(folder / "features.npy", options.dtype, (options.features,)) as out,
            ThreadPoolExecutor(1) as writer,
        ):
            pending = None
            for begin, labels in self._labels(rows):
                block = blocks[0][: len(labels)]
                blocks.reverse()
                call(
                    "synthetic_features",
                    seed=options.seed,
                    begin=begin,
                    rows=len(labels),
                    width=options.features,
                    labels=labels,
                    centres=centres,
                    signal=length,
                    noise=length * options.noise,
                    out=block,
                )
                if pending is not None:
                    pending.result()
                pending = writer.submit(out.append, block)
                reporter.stage("writing features", begin + len(labels), options.nodes)
            if pending is not None:
                pending.result()

    def _labels(self, rows: int) -> Iterator[tuple[int, np.ndarray]]:
        """The classes of all nodes, (begin, int32), some rows at a time."""
        nodes = self.options.nodes
        for begin in range(0, nodes, rows):
            labels = np.empty(min(rows, nodes - begin), np.int32)
            call(
                "synthetic_labels",
                nodes=nodes,
                communities=self.options.classes,
                first=self.first,
                seed=self.options.seed,
                begin=begin,
                rows=len(labels),
                labels=labels,
            )
            yield begin, labels

    def task(self) -> Task:
        """The task of the labelled nodes, split 78/8/14 as in papers100M; the edges stay on disk."""
        nodes, count = self.options.nodes, self.options.num_labelled
        drawn, labels = np.empty(count, np.int64), np.full(nodes, -1, np.int64)
        call("synthetic_sample", nodes=nodes, seed=self.options.seed, count=count, drawn=drawn)
        drawn.sort()
        at = 0
        for begin, part in self._labels(_ROWS):
            until = int(np.searchsorted(drawn, begin + len(part)))
            labels[drawn[at:until]] = part[drawn[at:until] - begin]
            at = until
        bare = Graph.from_csr(np.zeros(nodes + 1, np.int64), np.empty(0, np.int32))
        if count == 0:
            return Task("synthetic", bare, labels, (), "none")
        return Task("synthetic", bare, labels, (uniform_split(labels, self.options.seed, 0.78, 0.08),), "fixed")


def _community_bounds(options: SyntheticOptions) -> np.ndarray:
    """(classes + 1,): where each community begins; the size of the k-th is ∝ 1/√(k+1), and at least two nodes."""
    shares = np.cumsum(1 / np.sqrt(np.arange(1, options.classes + 1)))
    spare = options.nodes - 2 * options.classes
    bounds = np.zeros(options.classes + 1, np.int64)
    bounds[1:] = 2 * np.arange(1, options.classes + 1) + np.floor(spare * shares / shares[-1]).astype(np.int64)
    bounds[-1] = options.nodes
    return bounds


def _planned_degrees(options: SyntheticOptions, mean: float) -> np.ndarray:
    r"""Stubs before each position, (nodes + 1,): degrees are 1 plus a Lomax variable, cut off at nodes/400.

    :math:`d = 1 + s ((1 - u)^{-1/a} - 1)` has density :math:`\propto d^{-(a+1)}` for large d; fractions are rounded at
    random, which keeps the mean.
    """
    least = min(1.0, mean)
    largest = max(8.0, 4 * mean, options.nodes / _LARGEST_SHARE)
    scale = _lomax_scale(mean - least, largest)
    stubs = np.zeros(options.nodes + 1, np.int64)
    for chunk, begin in enumerate(range(0, options.nodes, _ROWS)):
        random = np.random.default_rng([options.seed, chunk])
        size = min(_ROWS, options.nodes - begin)
        degrees = random.random(size)
        np.subtract(1.0, degrees, out=degrees)
        np.power(degrees, -1 / _TAIL, out=degrees)
        degrees -= 1
        degrees *= scale
        np.minimum(degrees, largest, out=degrees)
        degrees += least
        degrees += random.random(size)
        stubs[begin + 1 : begin + size + 1] = degrees
    np.cumsum(stubs, out=stubs)
    return stubs


def _lomax_scale(mean: float, largest: float) -> float:
    """The scale s at which a Lomax variable, cut off at ``largest``, has that mean; found by bisection."""
    low, high = 0.0, 1e3 * max(mean, 1e-9)
    for _ in range(200):
        middle = (low + high) / 2
        reached = middle / (_TAIL - 1) * (1 - (1 + largest / max(middle, 1e-300)) ** (1 - _TAIL))
        low, high = (middle, high) if reached < mean else (low, middle)
    return high
