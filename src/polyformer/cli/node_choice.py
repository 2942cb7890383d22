"""The nodes that ``--nodes`` selects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["select_nodes"]


def select_nodes(choice: str, labels: np.ndarray, removed: np.ndarray | None = None) -> np.ndarray | None:
    """Ids of the nodes that ``all`` (None), ``labelled`` or a file of node numbers selects; refuse to select none.

    Args:
        removed: nodes that were removed from the graph, which ``all`` leaves out and a file must not name.
    """
    import numpy as np

    from polyformer.errors import DataNotFound, InvalidParameter
    from polyformer.splits import has_label
    from polyformer.tokens import check_nodes

    removed_nodes = np.empty(0, np.int64) if removed is None else removed
    if choice == "all":
        return None if len(removed_nodes) == 0 else np.setdiff1d(np.arange(len(labels)), removed_nodes)
    if choice == "labelled":
        node_numbers = np.flatnonzero(has_label(labels))
    elif Path(choice).is_file():
        node_numbers = _read_nodes(choice)
    else:
        raise DataNotFound(f"'--nodes' must be all, labelled or a file of node numbers. There is no file '{choice}'.")
    ids = check_nodes(node_numbers, len(labels))
    if ids is not None and len(ids) == 0:
        raise InvalidParameter(f"'--nodes' must select at least one node. Got {choice}, which selects none.")
    named = np.empty(0, np.int64) if ids is None else ids[np.isin(ids, removed_nodes)]
    if len(named):
        raise InvalidParameter(
            f"'{choice}' names node {int(named[0])}, which was removed from the graph. Leave it out."
        )
    return ids


def _read_nodes(path: str) -> np.ndarray:
    import warnings

    import numpy as np

    from polyformer.errors import FileCorrupt, InvalidData
    from polyformer.files import open_regular, read_npy, reading, require_regular
    from polyformer.limits import require_room

    try:
        if path.lower().endswith(".npy"):
            return read_npy(Path(path))
        with warnings.catch_warnings(), reading(Path(path)), open_regular(Path(path)) as file:
            warnings.simplefilter("ignore")  # numpy warns of a file without numbers
            require_room(require_regular(Path(path)), f"'{path}'")
            return np.loadtxt(file, np.int64, ndmin=1)
    except FileCorrupt as error:
        raise InvalidData(f"'{path}' must hold one node number a line, or be a .npy file of them ({error}).") from None
