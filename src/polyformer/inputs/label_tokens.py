"""Tokens of known labels beside the tokens of features: one set for all labels, and one for each mask of training."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyformer.inputs.token_inputs import RowInput
from polyformer.label_input import LabelMask

__all__ = ["LabelledInput"]


class LabelledInput(RowInput):
    """Rows of feature tokens with the tokens of the label columns behind them: (B, K+1, d + L).

    Columns are propagated independently, so tokens of features serve every mask, and a mask costs its L columns alone.

    Args:
        features: tokens of the features.
        known: tokens of all known labels, of the same nodes.
        masked: for every mask, tokens of the labels that it shows, of the nodes whose labels it hides.
    """

    def __init__(self, features: RowInput, known: RowInput, masked: Sequence[RowInput] = ()) -> None:
        self.features, self.known, self.masked = features, known, masked
        self._shown = known
        self.route = features.route  # features have most of the tokens

    def show_labels(self, mask: LabelMask | None) -> None:
        if mask is None:
            self._shown = self.known
            return
        assert mask.number is not None, "a model on stored tokens is bound to the masks that it will see"
        self._shown = self.masked[mask.number]

    def rows(self, nodes: Tensor, like: Tensor) -> Tensor:
        return torch.cat([self.features.scaled_rows(nodes, like), self._shown.rows(nodes, like)], dim=-1)

    def shuffle(self, nodes: Tensor, random: np.random.Generator) -> Iterator[Tensor]:
        return self.features.shuffle(nodes, random)

    def sort(self, nodes: Tensor) -> Tensor:
        return self.features.sort(nodes)

    def ahead(self, nodes: Tensor, batches: Iterator[Tensor]) -> Generator[Tensor]:
        return self.features.ahead(nodes, batches)

    def describe(self) -> dict[str, Any]:
        return self.features.describe()
