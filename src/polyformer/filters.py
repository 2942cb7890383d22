"""What a trained PolyFormer does to the spectrum: every node's coefficients and response."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from polyformer.bases import FixedBasis
from polyformer.errors import InvalidParameter
from polyformer.models.contract import bound
from polyformer.models.polyformer import PolyFormerModel

__all__ = ["filter_coefficients", "filter_response"]


def filter_coefficients(model: PolyFormerModel, nodes: np.ndarray, layer: int = 0) -> np.ndarray:
    """α_k of each node and head in one layer's PolyAttn: (len(nodes), H, K+1)."""
    count = len(model.network.blocks)
    if not 0 <= layer < count:
        raise InvalidParameter(f"'layer' must lie in 0..{count - 1}. Got {layer}.")
    return model.filter_coefficients(torch.from_numpy(nodes), layer)


def filter_response(
    model: PolyFormerModel, nodes: np.ndarray, lam: Any, layer: int = 0, channel: int | None = None
) -> np.ndarray:
    r"""The filter of each node and head: :math:`h_i(λ) = \sum_k α_k g_k(λ)`, (len(nodes), H, len(lam)).

    It is the first layer's PolyAttn on its own normalised input, the residual left out; exact for a bare PolyAttn.
    Later layers have coefficients but no spectrum: their tokens are no polynomials of the operator any more.

    Args:
        channel: the feature column whose recurrence is meant; needed by the optimal basis and by no other.
    """
    if layer != 0:
        raise InvalidParameter(
            f"'layer' must be 0: later layers have coefficients but no spectrum. Got {layer}. Use filter_coefficients."
        )
    lam = np.asarray(lam, dtype=np.float64)
    if lam.ndim != 1:
        raise InvalidParameter(f"'lam' must be one-dimensional. Got shape {lam.shape}.")
    return np.einsum("nhk,kl->nhl", filter_coefficients(model, nodes, layer), _response(model, lam, channel))


def _response(model: PolyFormerModel, lam: np.ndarray, channel: int | None) -> np.ndarray:
    if isinstance(model.basis, FixedBasis):
        if channel is not None:
            raise InvalidParameter(
                f"'channel' must be None for the basis '{model.basis.name}': all channels share it. Got {channel}."
            )
        return model.basis.response(lam, model.order)
    if channel is None or not 0 <= channel < model.in_channels:
        raise InvalidParameter(
            f"'channel' must lie in 0..{model.in_channels - 1} for the optimal basis, which differs by feature column. "
            f"Got {channel}."
        )
    return bound(model.recurrence).response(lam, channel)
