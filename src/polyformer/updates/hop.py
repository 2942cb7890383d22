"""One hop of the token recurrence on some rows, and sets of rows with a number each."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from polyformer.native import call, is_available

__all__ = ["inverse_root", "joined_sums", "make_hop", "union_of"]

_NUMBERS_PER_THREAD = 1 << 23
"""Less work than this is done before a second thread has woken up."""


def make_hop(
    k: int,
    target: np.ndarray,
    offsets: np.ndarray,
    source: np.ndarray,
    coefficient: np.ndarray,
    diagonal: np.ndarray,
    arrays: tuple[np.ndarray, np.ndarray | None, np.ndarray | None],
) -> np.ndarray:
    r"""Rows of :math:`T_k = 2 M T_{k-1} - T_{k-2}` (:math:`T_1 = M T_0`), M = -P: (n, d) float32, sums in double.

    Args:
        target: (n,) rows of the working array, whose own tokens of the orders below are read there.
        offsets: (n+1,) where the entries of each row begin.
        source: (entries,) where the tokens of each neighbour begin: 4 × the place of their first number in one of the
            arrays, plus the number of that array.
        coefficient: (entries,) float64 entries of P.
        diagonal: (n,) float64 diagonal of P.
        arrays: the working array (m, K+1, d), the stored tokens, and the log, all float32.
    """
    alpha, beta = (-1.0, 0.0) if k == 1 else (-2.0, -1.0)
    work, stored, log = arrays
    _, tokens, columns = work.shape
    if not is_available():
        unique, column = np.unique(source, return_inverse=True)
        matrix = sp.csr_matrix((coefficient, column, offsets), shape=(len(target), len(unique)))
        own = work[target]
        sums = matrix @ _neighbour_rows(k, unique, arrays, columns) + diagonal[:, None] * own[:, k - 1]
        return np.asarray(alpha * sums + (beta * own[:, k - 2] if beta else 0.0), np.float32)
    out = np.empty((len(target), columns), np.float32)
    call(
        "token_rows",
        rows=len(target),
        tokens=tokens,
        columns=columns,
        order=k,
        target=target,
        indptr=offsets,
        source=source,
        coefficient=coefficient,
        diagonal=diagonal,
        work=work,
        stored=stored,
        log=log,
        alpha=alpha,
        beta=beta,
        out=out,
        threads=1 if len(source) * columns < _NUMBERS_PER_THREAD else None,
    )
    return out


def _neighbour_rows(
    k: int, source: np.ndarray, arrays: tuple[np.ndarray, np.ndarray | None, np.ndarray | None], columns: int
) -> np.ndarray:
    """Tokens of order k - 1 of the neighbours that ``source`` names, as :func:`make_hop` describes it: (n, d)."""
    values = np.empty((len(source), columns))
    for number, array in enumerate(arrays):
        part = np.flatnonzero(source & 3 == number)
        if array is None or len(part) == 0:
            continue
        begin = (source[part] >> 2) + (k - 1) * columns
        values[part] = array.reshape(-1)[begin[:, None] + np.arange(columns)]
    return values


def inverse_root(degrees: np.ndarray) -> np.ndarray:
    """S of degrees; 1 where the degree is 0, as in :class:`polyformer.operators.Operator`."""
    return 1 / np.sqrt(np.where(degrees > 0, degrees, 1.0))


def union_of(num_nodes: int, *sets: np.ndarray) -> np.ndarray:
    """The ids of all sets, rising."""
    total = sum(len(part) for part in sets)
    if total < num_nodes // 32:
        return np.unique(np.concatenate(sets).astype(np.int64))
    mask = np.zeros(num_nodes, bool)
    for part in sets:
        mask[part] = True
    return np.flatnonzero(mask)


def joined_sums(
    nodes: np.ndarray, gain: np.ndarray, others: np.ndarray, more: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of ids with a number each as one; numbers of ids in both add up."""
    if len(others) == 0:
        return nodes.astype(np.int64), gain
    union, place = np.unique(np.concatenate([nodes, others]), return_inverse=True)
    return union.astype(np.int64), np.bincount(place, np.concatenate([gain, more]), len(union))
