"""What people hand to an estimator, read: graphs of other libraries, node ids, labels of any kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.errors import InvalidData, InvalidParameter
from polyformer.graph import Graph
from polyformer.graph_checks import to_numpy
from polyformer.tokens import check_nodes

__all__ = [
    "ReadLabels",
    "as_graph",
    "is_graph",
    "labels_of",
    "masks_of",
    "read_classes",
    "read_node_ids",
    "read_values",
]

_ACCEPTED = "a polyformer Graph, a torch_geometric Data, a NetworkX graph or a scipy sparse adjacency matrix"


def is_graph(value: Any) -> bool:
    """Whether a value is a graph of a kind that :func:`as_graph` reads.

    >>> is_graph(sp.eye(3)), is_graph([0, 1, 2])
    (True, False)
    """
    return isinstance(value, Graph) or sp.issparse(value) or hasattr(value, "edge_index") or _is_networkx(value)


def _is_networkx(value: Any) -> bool:
    return hasattr(value, "number_of_nodes") and hasattr(value, "nodes") and hasattr(value, "edges")


def as_graph(value: Any) -> Graph:
    """A graph of another library as a :class:`Graph`; any other object is refused in one sentence."""
    if isinstance(value, Graph):
        return value
    if sp.issparse(value):
        return Graph.from_scipy(value)
    if hasattr(value, "edge_index"):
        return Graph.from_pyg(value)
    if _is_networkx(value):
        return Graph.from_networkx(value)
    hint = ""
    if isinstance(getattr(value, "graph", None), Graph):
        hint = " Pass its attribute graph."
    elif isinstance(value, str):
        hint = f" Open it first: pf.load_dataset({value!r}).graph."
    elif hasattr(value, "__len__"):
        hint = " To pass node ids, give the graph to the estimator first: graph=…."
    raise InvalidParameter(f"'graph' must be {_ACCEPTED}. Got {_kind(value)}.{hint}")


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {tuple(shape)}" if shape is not None else "")


def read_node_ids(values: Any, num_nodes: int) -> np.ndarray:
    """Node ids (n,) int64 from ids (n,) or a column of ids (n, 1), as scikit-learn hands them on, or from a mask."""
    ids = to_numpy(values, "nodes")
    if ids.ndim == 2 and ids.shape[1] == 1:
        ids = ids[:, 0]
    checked = check_nodes(ids, num_nodes)
    assert checked is not None
    return checked


@dataclass(frozen=True, eq=False)
class ReadLabels:
    """Labels that were read: (n,) int64 classes from 0 on, -1 unknown, or float64 values, NaN unknown.

    Attributes:
        classes: (C,) what the classes are called; None for real values.
    """

    values: np.ndarray
    classes: np.ndarray | None = None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """What the classes are called in tables; None where their numbers say it all."""
        if self.classes is None or np.array_equal(self.classes, np.arange(len(self.classes))):
            return None
        return tuple(str(name) for name in self.classes)

    def on(self, nodes: np.ndarray, num_nodes: int) -> ReadLabels:
        """The same for a whole graph in which only ``nodes`` have labels."""
        unknown = np.nan if self.classes is None else -1
        values = np.full(num_nodes, unknown, self.values.dtype)
        values[nodes] = self.values
        return replace(self, values=values)


def read_classes(labels: Any, unlabelled: bool) -> ReadLabels:
    """Labels of any kind: text, numbers, truth values.

    Args:
        unlabelled: some nodes may have no label: -1 among whole numbers, NaN, None or empty text among others.

    >>> read_classes(["b", "a", None], unlabelled=True).values.tolist()
    [1, 0, -1]
    >>> read_classes([-1, 7, 7], unlabelled=False).classes.tolist()
    [-1, 7]
    """
    array = _one_column(labels)
    if array.dtype.kind == "S":
        array = array.astype(str)
    if array.dtype == object:
        missing = np.array([_is_missing(value) for value in array], bool)
        known = _plain(array[~missing])
    elif array.dtype.kind in "biufU":
        missing, known = np.zeros(len(array), bool), array
        if array.dtype.kind == "f":
            missing = np.isnan(array)
        elif array.dtype.kind == "U":
            missing = array == ""
        elif unlabelled and array.dtype.kind == "i":
            missing = array == -1
        known = array[~missing]
    else:
        raise InvalidData(f"'labels' must be text or numbers, one for each node. Got dtype {array.dtype}.")
    if missing.any() and not unlabelled:
        raise InvalidData(f"'y' must have a label for each node. Got none at position {int(missing.argmax())}.")
    if known.dtype.kind == "f" and not np.array_equal(known, np.round(known)):
        value = known[known != np.round(known)][0]
        raise InvalidData(
            f"Unknown label type: continuous, such as {value:g}. 'labels' must be classes. Use PolyFormerRegressor for "
            f"real values."
        )
    classes, places = np.unique(known, return_inverse=True)
    codes = np.full(len(array), -1, np.int64)
    codes[~missing] = places
    return ReadLabels(codes, classes)


def read_values(labels: Any, unlabelled: bool) -> ReadLabels:
    """Real values as float64; NaN where a label is unknown, if that may be."""
    array = _one_column(labels)
    try:
        values = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidData(
            f"'labels' must be real values. Got {array.dtype if array.dtype != object else 'other objects'}. Use "
            f"PolyFormerClassifier for classes."
        ) from None
    wrong = np.flatnonzero(np.isinf(values) if unlabelled else ~np.isfinite(values))
    if len(wrong):
        raise InvalidData(
            f"'labels' must be finite{', or NaN for unlabelled' if unlabelled else ''}. Got {values[wrong[0]]} at "
            f"position {int(wrong[0])}: NaN, inf and None are no values."
        )
    return ReadLabels(values)


def _one_column(labels: Any) -> np.ndarray:
    """Labels as a flat array; a column (n, 1) is flattened, other shapes are refused."""
    if hasattr(labels, "detach"):
        labels = to_numpy(labels, "labels")
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidData(f"'labels' must be one-dimensional, a label for each node. Got shape {array.shape}.")
    return array


def _is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA and empty text."""
    if value is None or (isinstance(value, str) and value == ""):
        return True
    return (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")


def _plain(values: np.ndarray) -> np.ndarray:
    """Python objects as text or numbers, whichever all of them are."""
    if all(isinstance(value, str) for value in values):
        return values.astype(str)
    if all(isinstance(value, bool | int | float | np.number | np.bool_) for value in values):
        return np.array(values.tolist())
    raise InvalidData("'labels' must be all text or all numbers. Got a mixture. Turn them into text first.")


def labels_of(graph: Any) -> Any:
    """The labels ``y`` that a ``torch_geometric.data.Data`` holds; None for other graphs."""
    return None if isinstance(graph, Graph) else getattr(graph, "y", None)


def masks_of(graph: Any) -> tuple[Any, Any]:
    """The masks of training and validation nodes that a ``torch_geometric.data.Data`` holds; None where there are none.

    One of several splits must be named: which one is meant cannot be told.
    """
    if isinstance(graph, Graph):
        return None, None
    train, val = (getattr(graph, f"{part}_mask", None) for part in ("train", "val"))
    if train is not None and train.ndim != 1:
        raise InvalidParameter(
            f"The graph's train_mask must have one split. Got shape {tuple(train.shape)}. Name one: "
            f"train=data.train_mask[:, 0], val=data.val_mask[:, 0]."
        )
    return train, val if train is not None else None
