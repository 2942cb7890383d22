"""Polynomial bases, one file each: the frequency responses g_0(λ), …, g_K(λ).

To add a basis: write its file and add its line to ``BASES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyformer.bases.base import Basis, FixedBasis, TabulatedBasis
from polyformer.bases.bernstein import Bernstein
from polyformer.bases.chebyshev import Chebyshev
from polyformer.bases.jacobi import Jacobi
from polyformer.bases.legendre import Legendre
from polyformer.bases.monomial import Monomial
from polyformer.bases.optimal import Optimal, Recurrence
from polyformer.errors import InvalidParameter
from polyformer.registry import Registry, check_options, parse_spec

__all__ = [
    "BASES",
    "LARGEST_ORDER",
    "Basis",
    "Bernstein",
    "Chebyshev",
    "FixedBasis",
    "Jacobi",
    "Legendre",
    "Monomial",
    "Optimal",
    "Recurrence",
    "TabulatedBasis",
    "basis_config",
    "basis_response",
    "check_order",
    "list_bases",
    "resolve_basis",
]

BASES: Registry[type[Basis]] = Registry(
    "basis",
    {
        "bernstein": Bernstein,
        "chebyshev": Chebyshev,
        "jacobi": Jacobi,
        "legendre": Legendre,
        "monomial": Monomial,
        "optimal": Optimal,
    },
)

LARGEST_ORDER = 1000
"""The largest order K. Mixing matrices and responses grow with its square."""


def list_bases() -> list[str]:
    """The names of all bases, in alphabetical order.

    >>> "chebyshev" in list_bases()
    True
    """
    return sorted(BASES)


def resolve_basis(basis: str | Basis | Mapping[str, Any]) -> Basis:
    """A basis from its name, its spec (``jacobi:a=1,b=0.5``), its saved form, or itself.

    >>> resolve_basis("jacobi:a=0.5")
    Jacobi(a=0.5, b=1.0)
    """
    if isinstance(basis, Basis):
        return basis
    if isinstance(basis, Mapping):
        return TabulatedBasis(basis["name"], basis["mixing"])
    if not isinstance(basis, str):
        raise InvalidParameter(
            f"'basis' must be a name or a basis object. Got {type(basis).__name__}. Try 'chebyshev'."
        )
    name, options = parse_spec(basis)
    kind = BASES[name]
    check_options("basis", name, options, kind().options)
    return kind(**options)


def basis_config(basis: Basis, order: int) -> str | dict[str, Any]:
    """A JSON value that :func:`resolve_basis` turns back: the spec, or for a user's own basis its mixing matrix."""
    if basis.name in BASES and type(basis) is BASES[basis.name]:
        return basis.spec
    if not isinstance(basis, FixedBasis):
        raise InvalidParameter(
            f"The basis '{basis.name}' must be a FixedBasis to be saved. Got {type(basis).__name__}."
        )
    return {"name": basis.name, "mixing": basis.mixing(order).tolist()}


def check_order(order: Any) -> int:
    """K as an int, at least 0 and at most ``LARGEST_ORDER``."""
    if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < 0:
        raise InvalidParameter(f"'order' must be a whole number, 0 or more. Got {order!r}. Try 10.")
    if order > LARGEST_ORDER:
        raise InvalidParameter(f"'order' must be at most {LARGEST_ORDER:,}. Got {order:,}. Try 10.")
    return int(order)


def basis_response(basis: str | Basis, order: int, lam: Any) -> np.ndarray:
    """g_0(λ), …, g_K(λ) of a fixed basis on the frequencies ``lam`` in [0, 2]: (n,) -> (K+1, n).

    >>> basis_response("monomial", order=2, lam=[0.0, 1.0]).tolist()
    [[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]]
    """
    resolved = resolve_basis(basis)
    if not isinstance(resolved, FixedBasis):
        raise InvalidParameter(
            f"The basis '{resolved.name}' has no response of its own: it depends on graph and features. "
            f"Use PolyFormerClassifier.filter_response with a channel."
        )
    lam = np.asarray(lam, dtype=np.float64)
    if lam.ndim != 1:
        raise InvalidParameter(f"'lam' must be one-dimensional. Got shape {lam.shape}.")
    return resolved.response(lam, check_order(order))
