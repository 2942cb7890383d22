from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.polynomial import chebyshev

from polyformer.bases import (
    BASES,
    FixedBasis,
    Jacobi,
    TabulatedBasis,
    basis_config,
    basis_response,
    list_bases,
    resolve_basis,
)
from polyformer.errors import InvalidParameter, UnknownName
from polyformer.graph import Graph
from polyformer.tokens import compute_tokens
from polyformer.transforms import PolyTokens
from tests import recipes

ALL_BASES = recipes.BASIS.added_to(BASES)
FIXED = [name for name in ALL_BASES if ALL_BASES[name].fixed]
LAM = np.linspace(0, 2, 41)


@pytest.fixture(autouse=True)
def _with_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes.BASIS.register(BASES, monkeypatch)


@pytest.mark.parametrize("order", [0, 1, 7, 20])
@pytest.mark.parametrize("name", FIXED)
def test_mixing_reproduces_the_response(name: str, order: int) -> None:
    basis = resolve_basis(name)
    assert isinstance(basis, FixedBasis)
    mixed = chebyshev.chebval(LAM - 1, basis.mixing(order).T)
    response = basis_response(name, order, LAM)
    largest = np.abs(response).max(axis=1, keepdims=True)  # (K+1, 1): some bases grow fast with k
    assert (np.abs(mixed - response) <= 1e-10 * (order + 1) * largest).all()


def test_mixing_of_chebyshev_is_the_identity() -> None:
    basis = resolve_basis("chebyshev")
    assert isinstance(basis, FixedBasis)
    assert np.array_equal(basis.mixing(12), np.eye(13))


def test_known_values() -> None:
    assert np.allclose(basis_response("bernstein", 9, LAM).sum(axis=0), 1)
    assert np.allclose(basis_response("monomial", 3, LAM)[3], (1 - LAM) ** 3)
    assert np.allclose(basis_response("chebyshev", 4, LAM)[4], np.cos(4 * np.arccos(LAM - 1)))
    assert np.allclose(basis_response("jacobi:a=0,b=0", 6, LAM), basis_response("legendre", 6, LAM))
    assert np.allclose(basis_response("chebyshev:shifted=false", 3, LAM)[2], 2 * LAM**2 - 1)


class Squares(FixedBasis):
    """A basis of a user's own: g_k = λ^k / 2^k."""

    def response(self, lam: np.ndarray, order: int) -> np.ndarray:
        k = np.arange(order + 1)[:, None]
        return (lam / 2) ** k


def test_a_basis_of_ones_own_needs_only_its_response() -> None:
    graph = Graph([[0, 1], [1, 2]], np.eye(3))
    tokens = compute_tokens(graph, Squares(), order=3)
    laplacian = np.eye(3) - np.array([[0, 0.5**0.5, 0], [0.5**0.5, 0, 0.5**0.5], [0, 0.5**0.5, 0]])
    assert np.allclose(tokens[:, 2], laplacian @ laplacian / 4, atol=1e-6)
    saved = basis_config(Squares(), 3)
    assert isinstance(saved, dict)
    restored = resolve_basis(saved)
    assert isinstance(restored, TabulatedBasis)
    assert restored.name == "squares"
    assert np.allclose(restored.response(LAM, 3), Squares().response(LAM, 3))
    with pytest.raises(InvalidParameter, match=r"is of order 3\. Got order 4"):
        restored.response(LAM, 4)


class Powers(FixedBasis):
    """The same to a power that must be given."""

    def __init__(self, power: int, scale: float = 0.5) -> None:
        self.power, self.scale = power, scale

    @property
    def options(self) -> dict[str, Any]:
        return {"power": self.power, "scale": self.scale}

    def response(self, lam: np.ndarray, order: int) -> np.ndarray:
        k = np.arange(order + 1)[:, None]
        return (self.scale * lam) ** np.minimum(self.power * k, order)


def test_a_basis_of_ones_own_may_need_options() -> None:
    assert Powers(2).spec == "powers:power=2"
    assert Powers(2, scale=1.0).spec == "powers:power=2,scale=1.0"
    assert repr(PolyTokens(Powers(3), 2)) == "PolyTokens('powers:power=3', order=2, self_loops=False)"
    assert resolve_basis(basis_config(Powers(2), 3)).spec == "powers"


def test_options_may_be_numbers_of_numpy() -> None:
    assert Jacobi(a=np.int64(1), b=np.float32(0.5)).spec == "jacobi:b=0.5"


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (lambda lam, order: np.exp(-np.arange(order + 1)[:, None] * lam), "must be polynomials of degree at most"),
        (lambda lam, order: np.ones((order, len(lam))), "must have shape"),
        (lambda lam, order: np.full((order + 1, len(lam)), np.nan), "must be finite"),
        (lambda lam, order: np.stack([lam ** (order + 1)] * (order + 1)), "must be polynomials of degree at most"),
    ],
)
def test_responses_that_are_no_basis_are_refused(response, message: str) -> None:
    wrong = type("Wrong", (FixedBasis,), {"response": lambda self, lam, order: response(lam, order)})
    with pytest.raises(InvalidParameter, match=message):
        wrong().mixing(4)


def test_names_and_specs() -> None:
    assert list_bases() == sorted(list_bases())
    assert resolve_basis("jacobi:a=0.5,b=2").spec == "jacobi:a=0.5,b=2.0"
    assert resolve_basis("jacobi").spec == "jacobi"
    assert isinstance(resolve_basis(Jacobi(a=2).spec), Jacobi)
    for name in BASES:
        assert basis_config(resolve_basis(name), 5) == name


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: resolve_basis("chebishev"), UnknownName, "Did you mean 'chebyshev'"),
        (lambda: resolve_basis("jacobi:c=1"), UnknownName, "has no option 'c'"),
        (lambda: resolve_basis("monomial:a=1"), UnknownName, "It takes none"),
        (lambda: resolve_basis("jacobi:a"), InvalidParameter, "must read name:key=value"),
        (lambda: resolve_basis(3), InvalidParameter, "'basis' must be a name or a basis object"),
        (lambda: Jacobi(a=-1), InvalidParameter, "'a' of the Jacobi basis must be a number above -1"),
        (lambda: basis_response("optimal", 3, LAM), InvalidParameter, "depends on graph and features"),
        (lambda: basis_response("monomial", 3, LAM[None]), InvalidParameter, "one-dimensional"),
        (lambda: basis_response("monomial", 2.5, LAM), InvalidParameter, "'order' must be a whole number"),
    ],
)
def test_bad_input(call, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
