"""What a basis is: a family of responses g_0(λ), …, g_K(λ) on the spectrum [0, 2]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.polynomial import chebyshev

from polyformer.errors import InvalidParameter
from polyformer.registry import format_spec

__all__ = ["Basis", "FixedBasis", "TabulatedBasis"]


class Basis(ABC):
    """A polynomial basis. Its ``name`` and the options of its constructor are all that identifies it."""

    name: ClassVar[str]
    fixed: ClassVar[bool]

    @property
    def options(self) -> dict[str, Any]:
        """The options of the constructor, which the spec lists."""
        return {}

    @property
    def spec(self) -> str:
        """``name:option=value,…``, which :func:`polyformer.bases.resolve_basis` turns back into the basis.

        Options that have their default value are left out.
        """
        defaults = {name: entry.default for name, entry in signature(type(self)).parameters.items()}
        return format_spec(self.name, {key: value for key, value in self.options.items() if value != defaults.get(key)})

    def __repr__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        return f"{type(self).__name__}({options})"


class FixedBasis(Basis):
    r"""A basis written as its frequency response and nothing else.

    The responses are polynomials of degree at most K, so they are a (K+1)×(K+1) mix of the Chebyshev polynomials:
    :math:`g_k(\lambda) = \sum_j M_{kj} T_j(\lambda - 1)`. So the tokens of the basis are the same mix of the
    Chebyshev tokens and cost no propagation of their own. To add a basis, subclass and write :meth:`response`.
    """

    fixed = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__.lower()

    @abstractmethod
    def response(self, lam: np.ndarray, order: int) -> np.ndarray:
        """g_0(λ), …, g_K(λ) for K = ``order``: (n,) -> (K+1, n)."""

    def mixing(self, order: int) -> np.ndarray:
        """M, (K+1, K+1) float64, by interpolation at the Chebyshev points: exact for polynomials of degree ≤ K.

        Raises:
            InvalidParameter: if the responses are not such polynomials (checked at other points), not finite or of
                another shape.
        """
        count = order + 1
        points = chebyshev.chebpts1(count)
        values = self._checked_response(1 + points, order)
        mixing = values @ chebyshev.chebvander(points, order) * (2 / count)
        mixing[:, 0] /= 2
        probes = np.cos(np.linspace(0.0, np.pi, 2 * count + 3))
        expected = self._checked_response(1 + probes, order)
        error = np.abs(chebyshev.chebval(probes, mixing.T) - expected).max(axis=1)
        scale = np.abs(expected).max(axis=1) + np.abs(mixing).sum(axis=1)
        worst = int(np.argmax(error - 1e-9 * scale))
        if error[worst] > 1e-9 * scale[worst]:
            raise InvalidParameter(
                f"The response of basis '{self.name}' must be polynomials of degree at most order={order} in λ. "
                f"Its g_{worst} is not: it is off by {error[worst]:.2g}. Raise the order or correct the response."
            )
        return mixing

    def _checked_response(self, lam: np.ndarray, order: int) -> np.ndarray:
        values = np.asarray(self.response(lam, order), dtype=np.float64)
        if values.shape != (order + 1, len(lam)):
            raise InvalidParameter(
                f"The response of basis '{self.name}' must have shape ({order + 1}, {len(lam)}) at order {order} "
                f"for {len(lam)} frequencies. Got {values.shape}."
            )
        if not np.isfinite(values).all():
            raise InvalidParameter(
                f"The response of basis '{self.name}' must be finite on [0, 2] at order {order}. Got NaN or infinity."
            )
        return values


class TabulatedBasis(FixedBasis):
    """A fixed basis given by its mixing matrix. A user's own basis is saved in this form, without its code."""

    def __init__(self, name: str, mixing: Any) -> None:
        self.name = name  # type: ignore[misc]  # a table has the name of the basis that it was made from
        self._mixing = np.asarray(mixing, dtype=np.float64)

    def response(self, lam: np.ndarray, order: int) -> np.ndarray:
        if order + 1 != len(self._mixing):
            raise InvalidParameter(
                f"The saved basis '{self.name}' is of order {len(self._mixing) - 1}. Got order {order}."
            )
        return np.asarray(chebyshev.chebval(np.asarray(lam) - 1, self._mixing.T))
