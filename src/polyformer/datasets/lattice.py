"""Edges of rectangular grids."""

from __future__ import annotations

import numpy as np

__all__ = ["lattice_edges"]


def lattice_edges(width: int, height: int, diagonals: bool = False) -> np.ndarray:
    """Edges of a grid whose cells are numbered row after row: to the right, down and, if asked for, diagonal: (2, E).

    >>> lattice_edges(2, 2)
    array([[0, 2, 0, 1],
           [1, 3, 2, 3]])
    """
    cell = np.arange(width * height).reshape(height, width)
    pairs = [(cell[:, :-1], cell[:, 1:]), (cell[:-1, :], cell[1:, :])]
    if diagonals:
        pairs += [(cell[:-1, :-1], cell[1:, 1:]), (cell[:-1, 1:], cell[1:, :-1])]
    return np.stack([np.concatenate([pair[end].ravel() for pair in pairs]) for end in range(2)])
