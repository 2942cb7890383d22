"""The tokens that a model is bound to: where it reads them and how it works through many nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyformer.bases import Recurrence
from polyformer.devices import rows_per_slice
from polyformer.inputs.token_inputs import RowInput, TokenInput
from polyformer.models.contract import in_slices

__all__ = ["BoundTokens"]


@dataclass(frozen=True, eq=False)
class BoundTokens:
    """Tokens of some nodes, in memory, on disk or made from projected features.

    Attributes:
        source: what gives the tokens.
        nodes: ids whose tokens can be read.
        recurrence: the recurrence of each feature column; None for a fixed basis.
    """

    source: TokenInput
    nodes: Sequence[int] | np.ndarray
    recurrence: Recurrence | None = None

    @classmethod
    def of_rows(
        cls, source: RowInput, nodes: Sequence[int] | np.ndarray, recurrence: Recurrence | None, keep_norms: bool
    ) -> BoundTokens:
        """Tokens that are rows of a table.

        Args:
            keep_norms: multiply tokens of the optimal basis by the norms of their feature columns.
        """
        if keep_norms and recurrence is not None:
            source.norms = torch.from_numpy(recurrence.norm)
        return cls(source, nodes, recurrence)

    @property
    def route(self) -> str:
        """How tokens reach the model: ``stored``, ``streamed`` or ``projected``."""
        return self.source.route

    def compute(
        self,
        nodes: Tensor,
        linear: nn.Linear,
        from_hidden: Callable[[Tensor], Tensor],
        from_tokens: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """A function of each node's tokens, without gradients: (B,) -> (B, …).

        The nodes are worked through in slices that suit the device, in the order in which tokens lie on disk. The
        projected route propagates once for all nodes.

        Args:
            linear: the first layer.
            from_hidden: the function, of the first layer's output (b, K+1, hidden).
            from_tokens: the same function, of the tokens (b, K+1, d).
        """
        source = self.source
        if not isinstance(source, RowInput):
            return in_slices(from_hidden, source.embed(nodes, linear))
        results: Tensor | None = None
        step = rows_per_slice(linear.weight.device)
        with contextlib.closing(source.ahead(nodes, iter(source.sort(nodes).split(step)))) as slices:
            for positions in slices:
                values = from_tokens(source.scaled_rows(nodes[positions], linear.weight))
                if results is None:
                    results = values.new_empty((len(nodes), *values.shape[1:]))
                results[positions] = values
        assert results is not None
        return results

    def describe(self) -> dict[str, Any]:
        """For the record of a run: the route, and how many rows are read from disk at a time."""
        return {"token_route": self.route, **self.source.describe()}
