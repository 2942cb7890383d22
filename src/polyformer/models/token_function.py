"""A model as a function of tokens alone: what can leave for a program that knows neither polyformer nor the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from polyformer.bases import FixedBasis

__all__ = ["TokenFunction"]


@dataclass(frozen=True, eq=False)
class TokenFunction:
    """What a model computes from the tokens of a node, and which tokens it reads.

    Attributes:
        outputs: (B, K+1, width) -> (B, out), the outputs of the model before its objective reads them.
        basis: basis of the tokens.
        order: K.
        self_loops: whether the operator is that of A + I.
        num_features: d, number of features of a node.
        encoding_channels: number of Laplacian eigenvectors that stand beside the features before they are propagated.
    """

    outputs: Callable[[Tensor], Tensor]
    basis: FixedBasis
    order: int
    self_loops: bool
    num_features: int
    encoding_channels: int = 0

    @property
    def width(self) -> int:
        """Number of columns of a token."""
        return self.num_features + self.encoding_channels
