"""An undirected graph with node features, validated once and then trusted by everything below it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from polyformer.errors import DataNotFound, FileCorrupt, InvalidData
from polyformer.files import array_digest, new_directory, read_json, write_json

__all__ = ["Features", "Graph"]

Features: TypeAlias = "np.ndarray | sp.csr_matrix"
"""Node features: a dense (N, d) array, in memory or memory-mapped, or a scipy CSR matrix."""

FORMAT = 1
_ROWS_PER_CHECK = 1 << 16


class Graph:
    r"""An undirected graph :math:`G = (V, E)` as a CSR pattern, with optional weights and features.

    Edges are symmetrised and de-duplicated, self-loops are dropped; where an edge is given more than once, in
    either direction, the largest weight is kept.

    Args:
        edge_index: a (2, E) integer array or tensor of node pairs, each edge once or in both directions; or a
            scipy sparse (N, N) adjacency, whose values are taken as weights unless all are one.
        features: (N, d) array, tensor or scipy sparse matrix of finite numbers, or None.
        num_nodes: N; by default the number of feature rows, else the largest node id plus one.
        edge_weight: (E,) finite non-negative weights.

    Shapes:
        ``indptr`` (N+1,) int64, ``indices`` (nnz,) int32, ``weights`` (nnz,) float32 or None, where nnz counts
        every edge in both directions.

    Example:
        >>> graph = Graph([[0, 1, 2], [1, 2, 0]], features=np.eye(4))
        >>> graph.num_nodes, graph.num_edges, graph.num_features
        (4, 3, 4)
    """

    indptr: np.ndarray
    indices: np.ndarray
    weights: np.ndarray | None
    features: Features | None

    def __init__(
        self,
        edge_index: Any,
        features: Any = None,
        num_nodes: int | None = None,
        edge_weight: Any = None,
    ) -> None:
        if sp.issparse(edge_index):
            edge_index, edge_weight, num_nodes = _from_adjacency(edge_index, edge_weight, num_nodes)
        source, target = _check_edges(edge_index)
        self.features = _check_features(features)
        count = _count_nodes(source, target, self.features, num_nodes)
        weights = _check_weights(edge_weight, len(source))
        self.indptr, self.indices, self.weights = _symmetric_csr(source, target, weights, count)

    @classmethod
    def from_csr(
        cls,
        indptr: np.ndarray,
        indices: np.ndarray,
        weights: np.ndarray | None = None,
        features: Features | None = None,
    ) -> Graph:
        """Wrap arrays that already are a symmetric CSR pattern without self-loops or repeats (not checked for that)."""
        graph = cls.__new__(cls)
        graph.indptr, graph.indices, graph.weights = indptr, indices, weights
        graph.features = features
        _check_csr(graph)
        return graph

    @classmethod
    def from_scipy(cls, adjacency: Any, features: Any = None) -> Graph:
        """From a scipy sparse (N, N) adjacency matrix."""
        if not sp.issparse(adjacency):
            raise InvalidData(f"'adjacency' must be a scipy sparse matrix. Got {type(adjacency).__name__}.")
        return cls(adjacency, features)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """From a ``torch_geometric.data.Data`` with ``edge_index`` and, if present, ``x`` and ``edge_weight``."""
        if getattr(data, "edge_index", None) is None:
            raise InvalidData("'data' must have an edge_index. Got one without; pass a torch_geometric Data object.")
        return cls(data.edge_index, getattr(data, "x", None), data.num_nodes, getattr(data, "edge_weight", None))

    @classmethod
    def from_networkx(cls, graph: Any, features: Any = None, weight: str | None = None) -> Graph:
        """From a NetworkX graph; node i is the i-th of ``graph.nodes``, weights come from the edge key ``weight``."""
        position = {node: i for i, node in enumerate(graph.nodes)}
        edges = [(position[u], position[v]) for u, v in graph.edges()]
        weights = [attributes.get(weight, 1.0) for _, _, attributes in graph.edges(data=True)] if weight else None
        edge_index = np.array(edges, dtype=np.int64).reshape(-1, 2).T
        return cls(edge_index, features, len(position), weights)

    @property
    def num_nodes(self) -> int:
        """N, the number of nodes."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """|E|, every undirected edge counted once."""
        return len(self.indices) // 2

    @property
    def num_features(self) -> int:
        """d, the number of feature columns; 0 without features."""
        return 0 if self.features is None else int(self.features.shape[1])

    @cached_property
    def degrees(self) -> np.ndarray:
        """(N,) float64: the number of neighbours, or the sum of the weights of a weighted graph."""
        if self.weights is None:
            return np.diff(self.indptr).astype(np.float64)
        padded = np.concatenate([self.weights.astype(np.float64), [0.0]])
        sums = np.add.reduceat(padded, self.indptr[:-1])
        return np.where(np.diff(self.indptr) > 0, sums, 0.0)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of structure, weights and features: what tokens and runs are tied to."""
        parts = [self.structure_fingerprint]
        if self.features is not None:
            x = self.features
            arrays = [x] if isinstance(x, np.ndarray) else [x.indptr, x.indices, x.data]
            parts.append(array_digest(*arrays))
        return "-".join(parts)

    @cached_property
    def structure_fingerprint(self) -> str:
        """A hash of the pattern and the weights alone."""
        arrays = [self.indptr, self.indices]
        return array_digest(*(arrays if self.weights is None else [*arrays, self.weights]))

    def adjacency(self, dtype: Any = np.float32) -> sp.csr_matrix:
        """A as a scipy CSR matrix of 1s or weights, sharing the index arrays."""
        values = np.ones(len(self.indices), dtype) if self.weights is None else self.weights.astype(dtype)
        return sp.csr_matrix((values, self.indices, self.indptr), shape=(self.num_nodes, self.num_nodes))

    def with_features(self, features: Any) -> Graph:
        """The same structure with other features."""
        checked = _check_features(features)
        _count_nodes(np.empty(0, np.int64), np.empty(0, np.int64), checked, self.num_nodes)
        return Graph.from_csr(self.indptr, self.indices, self.weights, checked)

    def save(self, directory: str | Path) -> None:
        """Write a *graph directory*: ``manifest.json`` and one memory-mappable file per array."""
        with new_directory(Path(directory)) as folder:
            write_json(folder / "manifest.json", self.write_arrays(folder))

    def write_arrays(self, folder: Path) -> dict[str, Any]:
        """Write the arrays into ``folder`` and return the manifest that describes them."""
        np.save(folder / "indptr.npy", self.indptr)
        np.save(folder / "indices.npy", self.indices)
        if self.weights is not None:
            np.save(folder / "weights.npy", self.weights)
        if isinstance(self.features, np.ndarray):
            np.save(folder / "features.npy", self.features)
        elif self.features is not None:
            sp.save_npz(folder / "features.npz", self.features, compressed=False)
        return {
            "format": FORMAT,
            "kind": "graph",
            "num_nodes": self.num_nodes,
            "num_edges": self.num_edges,
            "num_entries": len(self.indices),
            "num_features": self.num_features,
            "weighted": self.weights is not None,
            "features": None
            if self.features is None
            else ("dense" if isinstance(self.features, np.ndarray) else "sparse"),
            "structure": self.structure_fingerprint,
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def load(cls, directory: str | Path, *, verify: bool = False) -> Graph:
        """Open a graph directory; its arrays are memory-mapped.

        Args:
            directory: what :meth:`save` wrote.
            verify: also recompute the content hash, which reads every byte.
        """
        folder = Path(directory)
        if not folder.is_dir():
            raise DataNotFound(f"There is no graph directory '{folder}'. Check the path, or make one with Graph.save.")
        manifest = read_json(folder / "manifest.json", "a graph directory")
        if not isinstance(manifest, dict) or manifest.get("kind") != "graph" or manifest.get("format") != FORMAT:
            raise FileCorrupt(
                f"'{folder}' is not a graph directory of format {FORMAT}. Make it again with this version."
            )
        graph = cls.__new__(cls)
        graph.indptr, graph.indices = _map(folder / "indptr.npy"), _map(folder / "indices.npy")
        graph.weights = _map(folder / "weights.npy") if manifest["weighted"] else None
        kind = manifest["features"]
        graph.features = (
            None
            if kind is None
            else _map(folder / "features.npy")
            if kind == "dense"
            else _load_sparse(folder / "features.npz")
        )
        _check_manifest(graph, manifest, folder)
        if verify and graph.fingerprint != manifest["fingerprint"]:
            raise FileCorrupt(
                f"'{folder}' has changed since it was written: its content hash differs. Restore or make it again."
            )
        graph.fingerprint = manifest["fingerprint"]
        graph.structure_fingerprint = manifest["structure"]
        return graph

    def __repr__(self) -> str:
        weighted = ", weighted" if self.weights is not None else ""
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, num_features={self.num_features}{weighted})"
        )


def to_numpy(values: Any, name: str) -> np.ndarray:
    """Accept what numpy understands and torch tensors."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidData(f"'{name}' must be a rectangular array. Got one that numpy cannot read ({error}).") from None
    if array.dtype == object:
        raise InvalidData(
            f"'{name}' must hold numbers in a rectangular array. Got Python objects of mixed kinds or lengths."
        )
    return array


def _from_adjacency(
    adjacency: Any, edge_weight: Any, num_nodes: int | None
) -> tuple[np.ndarray, np.ndarray | None, int]:
    if edge_weight is not None:
        raise InvalidData(
            "'edge_weight' must be None where the edges come as a sparse matrix: its values are the weights."
        )
    if adjacency.shape[0] != adjacency.shape[1]:
        raise InvalidData(f"An adjacency matrix must be square. Got shape {adjacency.shape}.")
    if num_nodes is not None and num_nodes != adjacency.shape[0]:
        raise InvalidData(
            f"'num_nodes' must be {adjacency.shape[0]}, the size of the adjacency matrix. Got {num_nodes}."
        )
    coo = adjacency.tocoo()
    values = None if np.all(coo.data == 1) else coo.data
    return np.stack([coo.row, coo.col]), values, int(adjacency.shape[0])


def _check_edges(edge_index: Any) -> tuple[np.ndarray, np.ndarray]:
    edges = to_numpy(edge_index, "edge_index")
    if edges.size == 0:
        edges = np.empty((2, 0), np.int64)
    if edges.ndim != 2 or edges.shape[0] != 2:
        hint = " Transpose it." if edges.ndim == 2 and edges.shape[1] == 2 else ""
        raise InvalidData(f"'edge_index' must have shape (2, E). Got {edges.shape}.{hint}")
    if edges.dtype.kind not in "iu":
        raise InvalidData(
            f"'edge_index' must hold integer node ids. Got dtype {edges.dtype}. Convert the ids to int64."
        )
    return edges[0], edges[1]


def _check_features(features: Any) -> Features | None:
    if features is None:
        return None
    if getattr(features, "is_sparse", False) or "sparse" in str(getattr(features, "layout", "")):
        coo = features.detach().cpu().to_sparse_coo().coalesce()
        features = sp.csr_matrix((coo.values().numpy(), coo.indices().numpy()), shape=tuple(coo.shape))
    if sp.issparse(features):
        matrix = sp.csr_matrix(features, dtype=np.float32)
        matrix.sum_duplicates()
        wrong = np.flatnonzero(~np.isfinite(matrix.data))
        if len(wrong):
            row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
            _refuse_feature(matrix.data[wrong[0]], row, int(matrix.indices[wrong[0]]))
        return matrix
    array = to_numpy(features, "features")
    if array.ndim != 2:
        hint = " Use features[:, None] for one feature per node." if array.ndim == 1 else ""
        raise InvalidData(f"'features' must have shape (N, d). Got {array.shape}.{hint}")
    if array.dtype.kind not in "biuf":
        raise InvalidData(f"'features' must hold numbers. Got dtype {array.dtype}. Encode categories as numbers first.")
    if array.dtype not in (np.float32, np.float16):
        array = array.astype(np.float32)
    for start in range(0, len(array), _ROWS_PER_CHECK):
        bad = np.argwhere(~np.isfinite(array[start : start + _ROWS_PER_CHECK]))
        if len(bad):
            row, column = int(bad[0][0]) + start, int(bad[0][1])
            _refuse_feature(array[row, column], row, column)
    return array


def _refuse_feature(value: Any, row: int, column: int) -> None:
    raise InvalidData(
        f"'features' must be finite numbers. Got {value} at row {row}, column {column}. Fill or remove it first."
    )


def _count_nodes(source: np.ndarray, target: np.ndarray, features: Features | None, num_nodes: int | None) -> int:
    largest = max(int(source.max(initial=-1)), int(target.max(initial=-1)))
    count = num_nodes if num_nodes is not None else features.shape[0] if features is not None else largest + 1
    if count < 1:
        raise InvalidData("A graph must have at least one node. Got none: pass edges, features or num_nodes.")
    if count > 2**31 - 1:
        raise InvalidData(f"A graph can have at most 2^31 - 1 nodes. Got {count}.")
    if features is not None and features.shape[0] != count:
        raise InvalidData(f"'features' must have one row per node, {count} in all. Got {features.shape[0]} rows.")
    for ends in (source, target):
        wrong = np.flatnonzero((ends < 0) | (ends >= count))
        if len(wrong):
            edge = int(wrong[0])
            raise InvalidData(
                f"Edge {edge} joins nodes {int(source[edge])} and {int(target[edge])}, but node ids must lie in "
                f"0..{count - 1}. Correct the edge or pass a larger num_nodes."
            )
    return int(count)


def _check_weights(edge_weight: Any, num_edges: int) -> np.ndarray | None:
    if edge_weight is None:
        return None
    weights = to_numpy(edge_weight, "edge_weight").astype(np.float32)
    if weights.shape != (num_edges,):
        raise InvalidData(f"'edge_weight' must have shape ({num_edges},), one weight per edge. Got {weights.shape}.")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise InvalidData(
            f"'edge_weight' must be finite and not negative. Got {weights[bad[0]]} for edge {int(bad[0])}."
        )
    return weights


def _symmetric_csr(
    source: np.ndarray, target: np.ndarray, weights: np.ndarray | None, num_nodes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Both directions of every edge, sorted by row and column, without loops and repeats."""
    keep = source != target
    source, target = source[keep].astype(np.int32), target[keep].astype(np.int32)
    rows, columns = np.concatenate([source, target]), np.concatenate([target, source])
    if weights is None:
        # scipy's conversion is a counting sort that merges repeats; only the pattern is kept.
        pattern = sp.coo_matrix((np.ones(len(rows), np.int8), (rows, columns)), shape=(num_nodes, num_nodes)).tocsr()
        pattern.sort_indices()
        return pattern.indptr.astype(np.int64), pattern.indices.astype(np.int32), None
    weights = np.tile(weights[keep], 2)
    order = np.lexsort((-weights, columns, rows))
    rows, columns, weights = rows[order], columns[order], weights[order]
    first = np.ones(len(rows), bool)
    first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(rows[first], minlength=num_nodes), out=indptr[1:])
    return indptr, columns[first], weights[first]


def _check_csr(graph: Graph) -> None:
    """What memory safety of the native kernel rests on."""
    indptr, indices = graph.indptr, graph.indices
    if (
        indptr.dtype != np.int64
        or indices.dtype != np.int32
        or indptr.ndim != 1
        or indices.ndim != 1
        or len(indptr) < 2
    ):
        raise InvalidData(
            f"A CSR pattern needs int64 row pointers and int32 columns. Got {indptr.dtype} and {indices.dtype}."
        )
    if indptr[0] != 0 or indptr[-1] != len(indices) or np.any(indptr[1:] < indptr[:-1]):
        raise InvalidData(f"Row pointers must rise from 0 to the number of entries, {len(indices)}. Got other values.")
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= graph.num_nodes):
        raise InvalidData(
            f"Column ids must lie in 0..{graph.num_nodes - 1}. Got {int(indices.min())}..{int(indices.max())}."
        )
    if graph.weights is not None and graph.weights.shape != indices.shape:
        raise InvalidData(f"There must be {len(indices)} weights, one per entry. Got {graph.weights.shape}.")
    if graph.features is not None and graph.features.shape[0] != graph.num_nodes:
        raise InvalidData(
            f"'features' must have one row per node, {graph.num_nodes} in all. Got {graph.features.shape[0]} rows."
        )


def _check_manifest(graph: Graph, manifest: Mapping[str, Any], folder: Path) -> None:
    try:
        _check_csr(graph)
    except InvalidData as error:
        raise FileCorrupt(f"The graph directory '{folder}' is damaged. {error}") from None
    for name, actual in (
        ("num_nodes", graph.num_nodes),
        ("num_entries", len(graph.indices)),
        ("num_features", graph.num_features),
    ):
        if manifest[name] != actual:
            raise FileCorrupt(
                f"'{folder}' is damaged: its manifest says {name}={manifest[name]}, its arrays say {actual}."
            )


def _map(path: Path) -> np.ndarray:
    try:
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError:
        raise FileCorrupt(
            f"'{path}' is missing from its graph directory. Restore it from a copy or make it again."
        ) from None
    except (ValueError, OSError, EOFError) as error:
        raise FileCorrupt(f"'{path}' cannot be read ({error}). Restore it from a copy or make it again.") from None


def _load_sparse(path: Path) -> sp.csr_matrix:
    try:
        return sp.csr_matrix(sp.load_npz(path))
    except Exception as error:  # zip, key, value and OS errors alike mean that the file is not what it was
        raise FileCorrupt(f"'{path}' cannot be read ({error}). Restore it from a copy or make it again.") from None
