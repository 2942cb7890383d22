"""How far tokens may be from those computed from nothing: what was left out, and the bound that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyformer.bases import Basis, FixedBasis, resolve_basis
from polyformer.errors import InvalidParameter
from polyformer.stores.directory import StoredTokens

__all__ = ["TokenUpdate", "error_bounds", "root_mean_squares", "token_thresholds"]

_SAMPLE_ROWS = 4096


@dataclass(frozen=True)
class TokenUpdate:
    """What an update of a token directory did.

    Attributes:
        rows_touched: how many rows of each order, 0 to K, got other tokens.
        rows_written: how many rows were written.
        error_bounds: for each order k a bound on the Frobenius norm of its error, ``Σ_(l≤k) (k-l+1) ‖ρ_l‖``, where ρ_l
            holds what was left out of order l in each row; zeros after an exact update.
        tolerance: what was asked for; 0 is exact.
        recomputed: so many rows were touched that all were computed anew.
        seconds: how long it took.
    """

    rows_touched: tuple[int, ...]
    rows_written: int
    error_bounds: tuple[float, ...]
    tolerance: float
    recomputed: bool
    seconds: float

    @property
    def error_bound(self) -> float:
        """The bound of the highest order, which is the largest."""
        return self.error_bounds[-1]

    def bound_in(self, basis: str | Basis) -> float:
        """The bound on the error of any token in the view of a fixed basis: the mixing's rows times the bounds.

        >>> round(TokenUpdate((1, 1), 1, (0.0, 0.5), 1e-3, False, 0.0).bound_in("monomial"), 3)
        0.5
        """
        kind = resolve_basis(basis)
        if not isinstance(kind, FixedBasis):
            raise InvalidParameter(f"The basis '{kind.name}' is no view of Chebyshev tokens, so it has no bound here.")
        mixing = np.abs(kind.mixing(len(self.error_bounds) - 1))
        return float((mixing @ np.asarray(self.error_bounds)).max())


def token_thresholds(rms: Sequence[float], tolerance: float) -> np.ndarray | None:
    """(K+1,) what may be left out of a row of each order; None where nothing may be."""
    return None if tolerance == 0 else tolerance * np.asarray(rms)


def root_mean_squares(stored: StoredTokens) -> list[float]:
    """Root mean square of the rows' norms, order by order, of rows spread over all; measured once and kept."""
    if "rms" in stored.manifest:
        return list(stored.manifest["rms"])
    layers = stored.layers
    nodes = np.unique(np.linspace(0, layers.num_rows - 1, min(layers.num_rows, _SAMPLE_ROWS)).astype(np.int64))
    sample = layers.take(nodes).astype(np.float64)
    return [float(value) for value in np.sqrt(np.square(sample).sum(axis=2).mean(axis=0))]


def error_bounds(left_out: np.ndarray | None, num_tokens: int) -> tuple[float, ...]:
    """For each order k: ‖ρ_0‖ + Σ_(1≤l≤k) (k-l+1) ‖ρ_l‖, as an error δ of order l enters as U_(k-l)(M) δ.

    Args:
        left_out: (K+1, N) float32 bounds on what each order of each row leaves out.
        num_tokens: K+1.

    >>> error_bounds(np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]], np.float32), 3)
    (0.0, 5.0, 11.0)
    """
    if left_out is None:
        return (0.0,) * num_tokens
    norms = np.sqrt([np.einsum("n,n->", bounds, bounds, dtype=np.float64) for bounds in left_out])
    orders = np.arange(num_tokens)
    shares = np.maximum(orders[:, None] - orders[None] + 1, 0)  # (k, l)
    shares[:, 0] = 1
    return tuple(float(bound) for bound in shares @ norms)
