"""The read-out of PolyFormer and of the models that differ from it by their filter alone."""

from __future__ import annotations

from torch import nn

from polyformer.nn.functional import Dropout
from polyformer.parameter_checks import check_dropout

__all__ = ["read_out"]


def read_out(hidden_channels: int, out_channels: int, dropout: float) -> nn.Sequential:
    """Dropout - Linear - ReLU - dropout - Linear: (B, hidden) -> (B, out).

    >>> len(read_out(8, 2, dropout=0.5))
    5
    """
    check_dropout("dropout", dropout)
    return nn.Sequential(
        Dropout(dropout),
        nn.Linear(hidden_channels, hidden_channels),
        nn.ReLU(),
        Dropout(dropout),
        nn.Linear(hidden_channels, out_channels),
    )
