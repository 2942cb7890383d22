"""What a model that is a filter can tell of itself, asked as ``isinstance(model, NodeWiseFilter)``."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from polyformer.errors import InvalidParameter

__all__ = ["NodeWiseFilter", "SpectralFilter", "check_no_channel"]


@runtime_checkable
class SpectralFilter(Protocol):
    """A bound model that knows what it does to each frequency, for plots."""

    def frequency_response(self, lam: np.ndarray, nodes: Tensor | None = None) -> np.ndarray:
        """Gains on the frequencies λ in [0, 2]: (n,) -> (F, n), a row for each filter that the model has.

        Args:
            nodes: whose filters are meant, where every node has its own; all nodes by default.
        """


@runtime_checkable
class NodeWiseFilter(Protocol):
    r"""A bound model in which every node has filters of its own: :math:`h_i(λ) = \sum_k α_k^{(i)} g_k(λ)`."""

    exact_filter: ClassVar[bool]

    @property
    def filter_layers(self) -> int:
        """How many layers have coefficients."""

    def filter_input(self, layer: int) -> str | None:
        r"""What the polynomials g_k(P) of a layer are applied to; None where a layer has coefficients, but no spectrum.

        A response of that layer is relative to it: :math:`\sum_k α_k^{(i)} g_k(λ)` is the gain on a frequency of this
        signal, not of the features.
        """

    def filter_coefficients(self, nodes: Tensor, layer: int = 0) -> np.ndarray:
        """α of the nodes in a layer, head by head: (B,) -> (B, H, K+1)."""

    def token_response(self, lam: np.ndarray, channel: int | None = None) -> np.ndarray:
        """g_0(λ), …, g_K(λ), of one feature column where they differ by column: (n,) -> (K+1, n)."""

    @property
    def default_channel(self) -> int | None:
        """The feature column to show: None where all share the basis, else the one with the largest norm."""

    @abstractmethod
    def check_channel(self, channel: int | None) -> None:
        """Refuse a feature column of :meth:`token_response` that there is not, or one where all share the basis."""


def check_no_channel(basis: str, channel: int | None) -> None:
    """Refuse a feature column where the basis is the same for all."""
    if channel is not None:
        raise InvalidParameter(
            f"'channel' is for the optimal basis: all channels share the basis '{basis}'. Got {channel}. Leave it out."
        )
