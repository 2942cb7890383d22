"""Models on tokens that are node-wise filters: what each of their tokens does to the spectrum."""

from __future__ import annotations

import numpy as np

from polyformer.bases import FixedBasis
from polyformer.errors import InvalidParameter
from polyformer.models.contract import bound
from polyformer.models.filter_contract import check_no_channel
from polyformer.models.parts.token_model import TokenModel

__all__ = ["SpectralTokenModel"]


class SpectralTokenModel(TokenModel):
    """A model on tokens whose first layer mixes the tokens of a node, and so filters the projected features."""

    def filter_input(self, layer: int) -> str | None:
        """The first layer filters features; what later layers see are no polynomials of P any more."""
        return "the projected features" if layer == 0 else None

    def token_response(self, lam: np.ndarray, channel: int | None = None) -> np.ndarray:
        """g_0(λ), …, g_K(λ); of the feature column ``channel`` for the optimal basis: (n,) -> (K+1, n)."""
        self.check_channel(channel)
        if isinstance(self.basis, FixedBasis):
            return self.basis.response(lam, self.order)
        assert channel is not None
        recurrence = bound(self.recurrence)
        scale = recurrence.norm[channel] if self.settings.keep_norms else 1.0
        return scale * recurrence.response(lam, channel)

    @property
    def default_channel(self) -> int | None:
        """None where all feature columns share the basis, else the column with the largest norm."""
        return None if self.recurrence is None else int(self.recurrence.norm.argmax())

    def check_channel(self, channel: int | None) -> None:
        """Refuse a feature column that does not exist, and any column if all columns share the basis."""
        if isinstance(self.basis, FixedBasis):
            check_no_channel(self.basis.name, channel)
        elif channel is None or not 0 <= channel < self.in_channels:
            raise InvalidParameter(
                f"'channel' must lie in 0..{self.in_channels - 1} for the optimal basis, which differs by feature "
                f"column. Got {channel}."
            )
