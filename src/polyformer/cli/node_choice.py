"""What ``--nodes`` asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["select_nodes"]


def select_nodes(choice: str, labels: np.ndarray) -> np.ndarray | None:
    """Node ids of ``all`` (None), ``labelled``, or a file of node numbers (.npy or text, one a line); at least one."""
    import numpy as np

    from polyformer.errors import DataNotFound, InvalidParameter
    from polyformer.tokens import check_nodes

    if choice == "all":
        return None
    if choice == "labelled":
        node_numbers = np.flatnonzero(~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0)
    elif Path(choice).is_file():
        node_numbers = _read_nodes(choice)
    else:
        raise DataNotFound(f"'--nodes' must be all, labelled or a file of node numbers. There is no file '{choice}'.")
    ids = check_nodes(node_numbers, len(labels))
    if ids is not None and len(ids) == 0:
        raise InvalidParameter(f"'--nodes' must select at least one node. Got {choice}, which selects none.")
    return ids


def _read_nodes(path: str) -> np.ndarray:
    import warnings

    import numpy as np

    from polyformer.errors import InvalidData

    try:
        if path.lower().endswith(".npy"):
            return np.asarray(np.load(path, allow_pickle=False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of a file without numbers
            return np.loadtxt(path, np.int64, ndmin=1)
    except (ValueError, EOFError) as error:
        raise InvalidData(f"'{path}' must hold one node number a line, or be a .npy file of them ({error}).") from None
