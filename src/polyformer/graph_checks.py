"""The rules that a graph's arrays must keep: a graph that breaks one is refused with a sentence when it is made."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from polyformer.arrays import RowReader, row_pieces, row_ranges
from polyformer.column_statistics import LARGEST_FEATURE
from polyformer.errors import InvalidData
from polyformer.feature_scaling import ScaledFeatures
from polyformer.limits import MOST_NODES

__all__ = [
    "Features",
    "check_csr",
    "check_degrees",
    "check_edges",
    "check_features",
    "check_weights",
    "count_nodes",
    "edges_of_adjacency",
    "sum_rows",
    "to_numpy",
    "validate_sparse",
]

Features: TypeAlias = "np.ndarray | sp.csr_matrix | ScaledFeatures"
"""Node features: a dense (N, d) array, in memory or memory-mapped, such an array scaled, or a scipy CSR matrix."""

_ROWS_PER_CHECK = 1 << 16


def to_numpy(values: Any, name: str) -> np.ndarray:
    """An array from anything that numpy understands, or from a torch tensor."""
    if hasattr(values, "detach"):
        values = _from_tensor(values, name)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidData(f"'{name}' must be a rectangular array. Got one that numpy cannot read ({error}).") from None
    if array.dtype == object:
        raise InvalidData(
            f"'{name}' must hold numbers in a rectangular array. Got Python objects of mixed kinds or lengths."
        )
    return array


def _from_tensor(tensor: Any, name: str) -> np.ndarray:
    """A dense torch tensor as an array; bfloat16, which numpy lacks, becomes float32."""
    try:
        plain = tensor.detach().cpu()
        return np.asarray((plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy())
    except (TypeError, RuntimeError):  # also NotImplementedError, of a tensor without numbers, on the device "meta"
        kind = f"{tensor.dtype} of layout {tensor.layout} on {tensor.device}"
        raise InvalidData(f"'{name}' must be a dense tensor of plain numbers. Got {kind}. Convert it first.") from None


def validate_sparse(matrix: Any) -> None:
    """Raise a ValueError if a scipy matrix has indices outside itself; scipy takes for granted that it has none."""
    if hasattr(matrix, "indptr"):
        pointers = np.asarray(matrix.indptr)  # scipy does not look at those of a matrix that ends with the pointer 0
        if pointers.ndim != 1 or pointers[0] != 0 or np.any(pointers[1:] < pointers[:-1]):
            raise ValueError("its index pointers must rise from 0")
        if pointers[-1] > len(matrix.indices):
            raise ValueError(f"its index pointers lead to {pointers[-1]}, and it has {len(matrix.indices)} indices")
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    elif matrix.format == "coo":
        for ends, size in zip((matrix.row, matrix.col), matrix.shape, strict=True):
            if len(ends) != len(matrix.data) or np.any((ends < 0) | (ends >= size)):
                raise ValueError(f"its indices must lie in 0..{size - 1}, one for each of {len(matrix.data)} values")


def _check_sparse(matrix: Any, name: str) -> None:
    try:
        validate_sparse(matrix)
    except ValueError as error:
        raise InvalidData(
            f"'{name}' must be a valid sparse matrix. Got a damaged one ({error}). Build it again."
        ) from None


def edges_of_adjacency(
    adjacency: Any, edge_weight: Any, num_nodes: int | None
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """The node pairs, the weights (None if all are one) and the number of nodes of a scipy sparse adjacency matrix."""
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
    _check_sparse(adjacency, "adjacency")
    coo = adjacency.tocoo()
    values = None if np.all(coo.data == 1) else coo.data
    return np.stack([coo.row, coo.col]), values, int(adjacency.shape[0])


def check_edges(edge_index: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the edges: (2, E) integers -> (E,), (E,)."""
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


def check_features(features: Any) -> Features | None:
    """Finite features as float32 (float16 stays), dense or CSR; None stays None."""
    if features is None:
        return None
    if getattr(features, "is_sparse", False) or "sparse" in str(getattr(features, "layout", "")):
        features = _from_sparse_tensor(features)
    if sp.issparse(features):
        _check_sparse(features, "features")
        matrix = sp.csr_matrix(features)
        matrix.sum_duplicates()
        wrong = np.flatnonzero(~_is_usable(matrix.data))
        if len(wrong):
            row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
            _refuse_feature(matrix.data[wrong[0]], row, int(matrix.indices[wrong[0]]))
        return matrix.astype(np.float32, copy=False)
    array = to_numpy(features, "features")
    if array.ndim != 2:
        hint = " Use features[:, None] for one feature per node." if array.ndim == 1 else ""
        raise InvalidData(f"'features' must have shape (N, d). Got {array.shape}.{hint}")
    if array.dtype.kind not in "biuf":
        raise InvalidData(f"'features' must hold numbers. Got dtype {array.dtype}. Encode categories as numbers first.")
    for start in range(0, len(array), _ROWS_PER_CHECK):
        bad = np.argwhere(~_is_usable(array[start : start + _ROWS_PER_CHECK]))
        if len(bad):
            row, column = int(bad[0][0]) + start, int(bad[0][1])
            _refuse_feature(array[row, column], row, column)
    return array if array.dtype in (np.float32, np.float16) else array.astype(np.float32)


def _is_usable(values: np.ndarray) -> np.ndarray:
    """Mask of the numbers that a model can compute with: finite, and not too large for float32."""
    if values.dtype == np.float16 or values.dtype.kind in "bi":
        return np.isfinite(values)
    return np.asarray(np.abs(values) <= LARGEST_FEATURE)  # false for NaN


def _from_sparse_tensor(tensor: Any) -> Any:
    """A sparse torch matrix as a scipy one; its indices are not checked yet."""
    try:
        if str(tensor.layout) == "torch.sparse_csr":
            parts = tuple(
                to_numpy(part, "features") for part in (tensor.values(), tensor.col_indices(), tensor.crow_indices())
            )
            return sp.csr_matrix(parts, shape=tuple(tensor.shape))
        coo = tensor.detach().cpu().to_sparse_coo().coalesce()
        return sp.coo_matrix(
            (to_numpy(coo.values(), "features"), to_numpy(coo.indices(), "features")), shape=tuple(coo.shape)
        )
    except InvalidData:
        raise
    except (ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidData(f"'features' must be a valid sparse matrix. Got a tensor that is none ({reason}).") from None


def _refuse_feature(value: Any, row: int, column: int) -> None:
    rule = f"numbers of at most {LARGEST_FEATURE:g} in size" if np.isfinite(value) else "finite numbers"
    raise InvalidData(f"'features' must be {rule}. Got {value} at row {row}, column {column}. Fill or remove it first.")


def count_nodes(source: np.ndarray, target: np.ndarray, features: Features | None, num_nodes: int | None) -> int:
    """N; refuse features with another number of rows, and edges with other nodes."""
    largest = max(int(source.max(initial=-1)), int(target.max(initial=-1)))
    count = num_nodes if num_nodes is not None else features.shape[0] if features is not None else largest + 1
    if count < 1:
        raise InvalidData("A graph must have at least one node. Got none: pass edges, features or num_nodes.")
    if count > MOST_NODES:
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


def check_weights(edge_weight: Any, num_edges: int) -> np.ndarray | None:
    """(E,) finite weights that are not negative, as float32."""
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


def pyg_weights(edge_weight: Any, edge_attr: Any) -> tuple[Any, str]:
    """The weights of a PyTorch Geometric graph, or None, and a sentence on how its ``edge_attr`` is used.

    Without ``edge_weight``, one number per edge is the weight; several numbers are features of edges, which no model
    here reads.
    """
    if edge_attr is None:
        return edge_weight, ""
    values = to_numpy(edge_attr, "edge_attr")
    single = values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)
    if edge_weight is not None:
        return edge_weight, "'edge_attr' is not used: 'edge_weight' holds the weights."
    if not single:
        size = values[:1].size
        return None, f"'edge_attr' is not used: it has {size} numbers per edge, and features of edges are not read."
    values = values.reshape(-1)
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0))) if values.dtype.kind in "biuf" else np.arange(1)
    if len(bad):
        raise InvalidData(
            f"'edge_attr' has one value per edge, which would be its weight, but weights are finite and not negative. "
            f"Got {values[bad[0]]} for edge {int(bad[0])}. Set edge_weight, or remove edge_attr."
        )
    return values, "'edge_attr' has one number per edge and is taken as the weight; set edge_weight to use another."


def check_csr(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, features: Features | None) -> None:
    """Refuse arrays that would break the memory safety of the native kernel or make tokens infinite."""
    if (
        indptr.dtype != np.int64
        or indices.dtype != np.int32
        or indptr.ndim != 1
        or indices.ndim != 1
        or len(indptr) < 2
    ):
        raise InvalidData(
            f"A CSR pattern needs int64 row pointers and int32 columns, one list of each. Got {indptr.dtype} "
            f"{indptr.shape} and {indices.dtype} {indices.shape}."
        )
    num_nodes = len(indptr) - 1
    if not (indptr.flags.c_contiguous and indices.flags.c_contiguous):
        raise InvalidData("The arrays of a CSR pattern must be contiguous. Got strided ones. Copy them first.")
    if not _rises(indptr, len(indices)):
        raise InvalidData(f"Row pointers must rise from 0 to the number of entries, {len(indices)}. Got other values.")
    for _, piece in row_pieces(indices):
        if int(piece.min()) < 0 or int(piece.max()) >= num_nodes:
            raise InvalidData(f"Column ids must lie in 0..{num_nodes - 1}. Got {int(piece.min())}..{int(piece.max())}.")
    if weights is not None:
        _check_entry_weights(weights, len(indices))
        check_degrees(indptr, weights)
    if features is not None and features.shape[0] != num_nodes:
        raise InvalidData(f"'features' must have one row per node, {num_nodes} in all. Got {features.shape[0]} rows.")
    if sp.issparse(features):
        _check_sparse(features, "features")


def _check_entry_weights(weights: np.ndarray, num_entries: int) -> None:
    if weights.shape != (num_entries,) or weights.dtype != np.float32:
        raise InvalidData(
            f"There must be {num_entries} float32 weights, one per entry. Got {weights.dtype} of shape {weights.shape}."
        )
    for start, piece in row_pieces(weights):
        if not (float(piece.min()) >= 0 and float(piece.max()) < np.inf):
            bad = int(np.flatnonzero(~(np.isfinite(piece) & (piece >= 0)))[0])
            raise InvalidData(f"Weights must be finite and not negative. Got {piece[bad]} for entry {start + bad}.")


def check_degrees(indptr: np.ndarray, weights: np.ndarray | None) -> None:
    """Refuse positive degrees that are so small that their inverse, which scales rows, is infinite."""
    least = float(np.finfo(np.float32).tiny)
    if weights is None or not any(np.any((piece > 0) & (piece < least)) for _, piece in row_pieces(weights)):
        return
    degrees = sum_rows(indptr, weights)
    small = np.flatnonzero((degrees > 0) & (degrees < least))
    if len(small):
        raise InvalidData(
            f"The weights of a node's edges must sum to 0 or to at least {least:.3g}. Got {degrees[small[0]]:.3g} for "
            f"node {int(small[0])}. Multiply all weights by the same large number."
        )


def sum_rows(indptr: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """(N,) float64: the number of entries of each row, or the sum of their weights; arrays are read in parts."""
    sums = np.empty(len(indptr) - 1)
    with RowReader(indptr) as pointers, RowReader(indptr if weights is None else weights) as values:
        for start, stop in row_ranges(indptr, most_entries=1 << 22, most_rows=1 << 20):
            begins = pointers.read(start, stop + 1)
            np.subtract(begins[1:], begins[:-1], out=sums[start:stop])
            filled = np.flatnonzero(begins[1:] > begins[:-1])
            if weights is not None and len(filled):
                entries = values.read(int(begins[0]), int(begins[-1])).astype(np.float64)
                sums[start + filled] = np.add.reduceat(entries, begins[filled] - begins[0])
    return sums


def _rises(indptr: np.ndarray, last: int) -> bool:
    """Whether row pointers go from 0 to ``last`` and never fall; the array is read in pieces, to map little of it."""
    before = 0
    for start, piece in row_pieces(indptr):
        if (start == 0 and piece[0] != 0) or piece[0] < before or np.any(piece[1:] < piece[:-1]):
            return False
        before = int(piece[-1])
    return before == last
