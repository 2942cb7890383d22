"""An undirected graph with node features, checked once when it is made and trusted from then on."""

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
from polyformer.files import array_digest, is_folder, new_directory, write_npy
from polyformer.graph_change_checks import change_arrays
from polyformer.graph_changes import MOST_CHANGES, GraphChange
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
)
from polyformer.graph_edges import symmetric_csr
from polyformer.graph_files import (
    GraphArrays,
    describe_arrays,
    open_version,
    read_arrays,
    write_arrays,
    write_graph_manifest,
)
from polyformer.graph_journal import Journal

__all__ = ["Graph"]


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
    """The graph directory that this graph was opened from, if any: other processes find the same graph there."""
    published: bool = False
    """Whether the features belong to a published data set; such features are used as they were published."""
    manifest: dict[str, Any] | None = None
    """What the manifest of the graph directory said when this graph was opened."""
    removed: np.ndarray = np.empty(0, np.int64)
    """Ids, rising, of nodes that were removed: rows without edges, with zeros as features, that are never predicted."""

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
        self.indptr, self.indices, self.weights = symmetric_csr(source, target, weights, count)
        check_degrees(self.indptr, self.weights)

    @classmethod
    def from_csr(
        cls,
        indptr: np.ndarray,
        indices: np.ndarray,
        weights: np.ndarray | None = None,
        features: Features | None = None,
    ) -> Graph:
        """Wrap arrays that already are a symmetric CSR pattern without self-loops or repeats (which is not checked).

        Arrays with gaps between their entries are copied, and so are weights that are not float32.
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

        Without ``edge_weight``, an ``edge_attr`` of one number per edge is the weight. Features of edges are not read,
        so a warning says how an ``edge_attr`` is used.
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
    def present_nodes(self) -> np.ndarray:
        """Ids, rising, of the nodes that were not removed.

        >>> Graph([[0, 1], [1, 2]]).updated(remove_nodes=[1]).present_nodes
        array([0, 2])
        """
        return np.delete(np.arange(self.num_nodes), self.removed)

    @property
    def num_edges(self) -> int:
        """The number of edges; every undirected edge counts once."""
        return len(self.indices) // 2

    @property
    def num_features(self) -> int:
        """d, the number of feature columns; 0 without features."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def degrees(self) -> np.ndarray:
        """(N,) float64: the number of neighbours, or the sum of the weights of a weighted graph.

        Memory-mapped arrays are read in pieces, and the result is not cached.
        """
        return sum_rows(self.indptr, self.weights)

    @property
    def version(self) -> int:
        """How many changes the graph directory had seen when this graph was opened; 0 for a graph in memory."""
        return 0 if self.manifest is None else int(self.manifest.get("version", 0))

    @cached_property
    def history(self) -> tuple[GraphChange, ...]:
        """The last changes that led to this graph, oldest first: what tokens of an earlier version follow."""
        return () if self.directory is None else Journal(self.directory, self.version).changes(self.num_nodes)

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
        """A hash of structure, weights and features, by which tokens and runs recognise their graph."""
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
        graph = Graph.from_csr(self.indptr, self.indices, self.weights, checked)
        graph.removed, graph.manifest = self.removed, self.manifest
        if "structure_fingerprint" in vars(self):  # hashed once for all features
            graph.structure_fingerprint = self.structure_fingerprint
        if self.directory is not None or "history" in vars(self):
            graph.history = self.history
        return graph

    def updated(
        self,
        add_edges: Any = None,
        add_weights: Any = None,
        remove_edges: Any = None,
        add_features: Any = None,
        set_features: Mapping[int, Any] | None = None,
        remove_nodes: Any = None,
    ) -> Graph:
        """The graph after a change; this one stays as it is. Tokens follow with :func:`polyformer.update_tokens`.

        Nodes are removed first, then edges, then nodes and edges are added. Degrees of changed rows are summed anew.

        Args:
            add_edges: (e, 2) node ids; new nodes have the ids N, N+1, …. An edge that is there gets the given weight.
            add_weights: (e,) weights of these edges; 1 by default.
            remove_edges: (e, 2) node ids of edges that are there.
            add_features: (m, d) features of new nodes as they are stored, not scaled; (m, 0) where there are none.
            set_features: node id to (d,) row.
            remove_nodes: ids; their rows stay, empty, so that all other nodes keep their ids.

        Example:
            >>> path = Graph([[0, 1], [1, 2]], features=[[1.0], [2.0], [3.0]])
            >>> changed = path.updated(add_edges=[[0, 3]], remove_edges=[[1, 2]], add_features=[[4.0]])
            >>> changed
            Graph(num_nodes=4, num_edges=2, num_features=1)
        """
        if isinstance(self.features, ScaledFeatures):
            return self.unscaled.updated(
                add_edges, add_weights, remove_edges, add_features, set_features, remove_nodes
            ).scaled(self.scaling)
        after = change_arrays(
            self.indptr,
            self.indices,
            self.weights,
            self.features,
            self.removed,
            add_edges=add_edges,
            add_weights=add_weights,
            remove_edges=remove_edges,
            add_features=add_features,
            set_features=set_features,
            remove_nodes=remove_nodes,
        )
        parts = after.structure
        change = GraphChange(
            self.fingerprint, self.structure_fingerprint, self.num_nodes, parts.ends, parts.degrees, after.rows
        )
        graph = Graph.__new__(Graph)
        graph.indptr, graph.indices, graph.weights = parts.indptr, parts.indices, parts.weights
        graph.features, graph.removed, graph.published = after.features, after.removed, self.published
        graph.history = (*self.history, change)[-MOST_CHANGES:]
        if graph.features is self.features:  # only what changed is hashed again
            features_digest = self.fingerprint[len(self.structure_fingerprint) :]
            graph.fingerprint = graph.structure_fingerprint + features_digest
        return graph

    @property
    def scaling(self) -> FeatureScaling | None:
        """The scaling that is applied when features are read; None if features are used as they are stored."""
        return self.features.scaling if isinstance(self.features, ScaledFeatures) else None

    @cached_property
    def unscaled(self) -> Graph:
        """The same graph with its features as they are stored."""
        return self

    def scaled(self, scaling: FeatureScaling | None) -> Graph:
        """The same graph whose dense features are scaled when they are read; without a scaling, the graph as stored."""
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
        graph.manifest, graph.removed = raw.manifest, raw.removed
        return graph

    def save(self, directory: str | Path) -> None:
        """Write a *graph directory*: ``manifest.json`` and one memory-mappable file per array."""
        with new_directory(Path(directory)) as folder:
            write_graph_manifest(folder, self.write_arrays(folder))

    def write_arrays(self, folder: Path) -> dict[str, Any]:
        """Write the arrays into ``folder``, features as scaled, and return the manifest that describes the arrays."""
        if isinstance(self.features, ScaledFeatures):
            return self.with_features(np.asarray(self.features)).write_arrays(folder)
        write_arrays(folder, GraphArrays(self.indptr, self.indices, self.weights, self.features))
        if len(self.removed):
            write_npy(folder / "removed.npy", self.removed)
        sizes = (self.num_nodes, len(self.indices), self.num_features)
        return describe_arrays(folder, *sizes, self.structure_fingerprint, self.fingerprint)

    @classmethod
    def load(cls, directory: str | Path, *, verify: bool = False) -> Graph:
        """Open a graph directory with memory-mapped arrays; refuse files that were cut off or swapped.

        Args:
            directory: a directory that :meth:`save` wrote.
            verify: also recompute the content hash, which reads every byte.
        """
        folder = Path(directory)
        if not is_folder(folder):
            raise DataNotFound(f"There is no graph directory '{folder}'. Check the path, or make one with Graph.save.")
        return open_version(folder, lambda manifest: cls._load_version(folder, manifest, verify))

    @classmethod
    def _load_version(cls, folder: Path, manifest: dict[str, Any], verify: bool) -> Graph:
        """Open the files that a manifest names."""
        arrays = read_arrays(folder, manifest, verify)
        graph = cls.__new__(cls)
        graph.manifest, graph.removed = manifest, arrays.removed
        graph.indptr, graph.indices = arrays.indptr, arrays.indices
        graph.weights, graph.features = arrays.weights, arrays.features
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
