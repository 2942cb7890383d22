"""What ``--nodes`` asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["select_nodes"]


def select_nodes(choice: str, labels: np.ndarray) -> np.ndarray | None:
    """Node ids of ``all`` (None), ``labelled``, or a file of node numbers (.npy or text, one a line)."""
    import numpy as np

    from polyformer.errors import DataNotFound, InvalidData

    if choice == "all":
        return None
    if choice == "labelled":
        return np.flatnonzero(~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0)
    if not Path(choice).is_file():
        raise DataNotFound(f"'--nodes' must be all, labelled or a file of node numbers. There is no file '{choice}'.")
    try:
        return np.load(choice, allow_pickle=False) if choice.endswith(".npy") else np.loadtxt(choice, np.int64, ndmin=1)
    except ValueError as error:
        raise InvalidData(
            f"'{choice}' must hold one node number a line, or be a .npy file of them ({error})."
        ) from None
