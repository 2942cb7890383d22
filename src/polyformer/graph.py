"""An undirected graph with node features, validated once and then trusted by everything below it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.arrays import row_pieces
from polyformer.errors import DataNotFound, FileCorrupt, InvalidData
from polyformer.feature_scaling import FeatureScaling, ScaledFeatures
from polyformer.files import (
    array_digest,
    check_samples,
    file_samples,
    new_directory,
    read_json,
    require_keys,
    write_json,
)
from polyformer.graph_checks import (
    Features,
    check_csr,
    check_degrees,
    check_edges,
    check_features,
    check_weights,
    count_nodes,
    edges_of_adjacency,
    pyg_weights,
    sum_rows,
    validate_sparse,
)

__all__ = ["FORMAT", "Graph", "describe_arrays"]

FORMAT = 1
_ARRAY_FILES = ("indptr.npy", "indices.npy", "weights.npy", "features.npy", "features.npz")
_MANIFEST_KEYS = ("num_nodes", "num_entries", "num_features", "weighted", "features", "structure", "fingerprint")


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
    directory: Path | None = None
    """The graph directory that it was opened from, if any: where other processes find the same graph."""
    published: bool = False
    """Whether the features are those of a published data set, which are used as they were published."""

    def __init__(
        self,
        edge_index: Any,
        features: Any = None,
        num_nodes: int | None = None,
        edge_weight: Any = None,
    ) -> None:
        if sp.issparse(edge_index):
            edge_index, edge_weight, num_nodes = edges_of_adjacency(edge_index, edge_weight, num_nodes)
        source, target = check_edges(edge_index)
        self.features = check_features(features)
        count = count_nodes(source, target, self.features, num_nodes)
        weights = check_weights(edge_weight, len(source))
        self.indptr, self.indices, self.weights = _symmetric_csr(source, target, weights, count)
        check_degrees(self.indptr, self.weights)

    @classmethod
    def from_csr(
        cls,
        indptr: np.ndarray,
        indices: np.ndarray,
        weights: np.ndarray | None = None,
        features: Features | None = None,
    ) -> Graph:
        """Wrap arrays that already are a symmetric CSR pattern without self-loops or repeats (not checked for that).

        Arrays with gaps between their entries are copied, and weights that are not float32.
        """
        graph = cls.__new__(cls)
        graph.indptr, graph.indices = (np.asanyarray(array, order="C") for array in (indptr, indices))
        graph.weights = None if weights is None else np.asanyarray(weights, np.float32, order="C")
        graph.features = features
        check_csr(graph.indptr, graph.indices, graph.weights, graph.features)
        return graph

    @classmethod
    def from_scipy(cls, adjacency: Any, features: Any = None) -> Graph:
        """From a scipy sparse (N, N) adjacency matrix."""
        if not sp.issparse(adjacency):
            raise InvalidData(f"'adjacency' must be a scipy sparse matrix. Got {type(adjacency).__name__}.")
        return cls(adjacency, features)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """From a ``torch_geometric.data.Data`` with ``edge_index`` and, if present, ``x`` and ``edge_weight``.

        Without ``edge_weight``, an ``edge_attr`` of one number per edge is the weight. A warning tells what becomes of
        an ``edge_attr``: features of edges are not read.
        """
        if getattr(data, "edge_index", None) is None:
            raise InvalidData("'data' must have an edge_index. Got one without; pass a torch_geometric Data object.")
        weights, note = pyg_weights(getattr(data, "edge_weight", None), getattr(data, "edge_attr", None))
        if note:
            warnings.warn(note, stacklevel=2)
        return cls(data.edge_index, getattr(data, "x", None), data.num_nodes, weights)

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

    @property
    def degrees(self) -> np.ndarray:
        """(N,) float64: the number of neighbours, or the sum of the weights of a weighted graph.

        Mapped arrays are read in pieces, and nothing is kept.
        """
        return sum_rows(self.indptr, self.weights)

    @cached_property
    def longest_row(self) -> int:
        """The largest number of neighbours."""
        longest = last = 0
        for _, piece in row_pieces(self.indptr):
            longest = max(longest, int(piece[0]) - last, int(np.diff(piece).max(initial=0)))
            last = int(piece[-1])
        return longest

    @cached_property
    def fingerprint(self) -> str:
        """A hash of structure, weights and features: what tokens and runs are tied to."""
        parts = [self.structure_fingerprint]
        if isinstance(self.features, ScaledFeatures):
            return f"{self.unscaled.fingerprint}+{self.features.scaling.digest}"
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
        checked = check_features(features)
        count_nodes(np.empty(0, np.int64), np.empty(0, np.int64), checked, self.num_nodes)
        return Graph.from_csr(self.indptr, self.indices, self.weights, checked)

    @property
    def scaling(self) -> FeatureScaling | None:
        """How the features are scaled as they are read; None for features as they are stored."""
        return self.features.scaling if isinstance(self.features, ScaledFeatures) else None

    @cached_property
    def unscaled(self) -> Graph:
        """The same graph with its features as they are stored."""
        return self

    def scaled(self, scaling: FeatureScaling | None) -> Graph:
        """The same graph whose dense features are scaled as they are read; as it is where nothing is to be scaled."""
        raw = self.unscaled
        if scaling is None or not scaling.parts:
            return raw
        if not isinstance(raw.features, np.ndarray) or scaling.num_columns != raw.num_features:
            kind = "dense" if raw.features is None or isinstance(raw.features, np.ndarray) else "sparse"
            raise InvalidData(
                f"The scaling is that of {scaling.num_columns} dense features per node. This graph has "
                f"{raw.num_features} {kind} ones. Pass a graph with the same features as in training."
            )
        graph = Graph.from_csr(raw.indptr, raw.indices, raw.weights, ScaledFeatures(raw.features, scaling))
        graph.unscaled, graph.directory, graph.published = raw, raw.directory, raw.published
        graph.structure_fingerprint = raw.structure_fingerprint
        return graph

    def save(self, directory: str | Path) -> None:
        """Write a *graph directory*: ``manifest.json`` and one memory-mappable file per array."""
        with new_directory(Path(directory)) as folder:
            write_json(folder / "manifest.json", self.write_arrays(folder))

    def write_arrays(self, folder: Path) -> dict[str, Any]:
        """Write the arrays into ``folder`` and return the manifest that describes them; scaled features as scaled."""
        if isinstance(self.features, ScaledFeatures):
            return self.with_features(np.asarray(self.features)).write_arrays(folder)
        np.save(folder / "indptr.npy", self.indptr)
        np.save(folder / "indices.npy", self.indices)
        if self.weights is not None:
            np.save(folder / "weights.npy", self.weights)
        if isinstance(self.features, np.ndarray):
            np.save(folder / "features.npy", self.features)
        elif self.features is not None:
            sp.save_npz(folder / "features.npz", self.features, compressed=False)
        sizes = (self.num_nodes, len(self.indices), self.num_features)
        return describe_arrays(folder, *sizes, self.structure_fingerprint, self.fingerprint)

    @classmethod
    def load(cls, directory: str | Path, *, verify: bool = False) -> Graph:
        """Open a graph directory; its arrays are memory-mapped. Files that were cut off or swapped are refused.

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
        require_keys(manifest, _MANIFEST_KEYS, folder / "manifest.json")
        check_samples(folder, manifest.get("samples", {}))
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
        graph.directory = folder.absolute()
        return graph

    def __repr__(self) -> str:
        weighted = ", weighted" if self.weights is not None else ""
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, num_features={self.num_features}{weighted})"
        )


def describe_arrays(
    folder: Path, num_nodes: int, num_entries: int, num_features: int, structure: str, fingerprint: str
) -> dict[str, Any]:
    """The manifest of the arrays that stand in ``folder``, from their sizes and hashes."""
    dense, sparse = ((folder / f"features.{ending}").exists() for ending in ("npy", "npz"))
    return {
        "format": FORMAT,
        "kind": "graph",
        "num_nodes": num_nodes,
        "num_edges": num_entries // 2,
        "num_entries": num_entries,
        "num_features": num_features,
        "weighted": (folder / "weights.npy").exists(),
        "features": "dense" if dense else "sparse" if sparse else None,
        "structure": structure,
        "fingerprint": fingerprint,
        "samples": file_samples(folder, _ARRAY_FILES),
    }


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


def _check_manifest(graph: Graph, manifest: Mapping[str, Any], folder: Path) -> None:
    try:
        check_csr(graph.indptr, graph.indices, graph.weights, graph.features)
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
        matrix = sp.load_npz(path)
        validate_sparse(matrix)
        return sp.csr_matrix(matrix)
    except Exception as error:  # zip, key, value and OS errors alike mean that the file is not what it was
        raise FileCorrupt(f"'{path}' cannot be read ({error}). Restore it from a copy or make it again.") from None
