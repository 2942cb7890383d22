"""Models of one Linear on every token, and layers after it that see the tokens of one node at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from polyformer.bases import FixedBasis
from polyformer.devices import rows_per_slice
from polyformer.errors import InvalidParameter
from polyformer.inputs.token_inputs import RowInput
from polyformer.models.contract import bound
from polyformer.models.parts.token_reader import TokenReader, TokenSettings
from polyformer.models.token_function import TokenFunction

__all__ = ["TokenModel", "TokenSettings"]

_BYTES_PER_CHANNEL = 48


class TokenModel(TokenReader):
    """A model whose first layer is one Linear on every token; the layers after it see the tokens of one node at a time.

    A subclass has that layer as ``input`` and writes :meth:`encode`.
    """

    depth = 1
    """Number of blocks whose activations a training step keeps."""

    @property
    @abstractmethod
    def input(self) -> nn.Linear:
        """The first layer."""

    @abstractmethod
    def encode(self, hidden: Tensor) -> Tensor:
        """Outputs from the first layer's output: (B, K+1, hidden) -> (B, out)."""

    def encode_tokens(self, tokens: Tensor) -> Tensor:
        """Outputs from tokens: (B, K+1, d) -> (B, out)."""
        return self.encode(self.input(tokens))

    def on_tokens(self, name: str) -> TokenFunction:
        if not isinstance(self.basis, FixedBasis):
            raise InvalidParameter(
                f"The tokens of the basis '{self.basis.name}' depend on the features of all nodes, so the model cannot "
                f"be exported. Export a run with a fixed basis, such as chebyshev."
            )
        return TokenFunction(self.encode_tokens, self.basis, self.order, self.settings.self_loops, self.in_channels)

    @property
    def capabilities(self) -> frozenset[str]:
        """All, unless the basis depends on all nodes at once, or more than the features is propagated."""
        local = isinstance(self.basis, FixedBasis) and self.propagates_features
        return frozenset({"update", "new nodes", "serve"} if local else {"serve"})

    @property
    def rows_per_step(self) -> int:
        """As many rows as have activations that suit the device."""
        row_bytes = _BYTES_PER_CHANNEL * self.depth * (self.order + 1) * self.settings.hidden_channels
        return rows_per_slice(self.input.weight.device, row_bytes)

    def forward(self, nodes: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return bound(self._tokens).compute(nodes, self.input, self.encode, self.encode_tokens)
        source = bound(self._tokens).source
        if isinstance(source, RowInput):
            return self.encode_tokens(source.scaled_rows(nodes, self.input.weight))
        return self.encode(self.embed(nodes))

    def accumulate(self, nodes: Tensor, loss: Callable[[Tensor, slice], Tensor]) -> float:
        """Add the gradient slice by slice; the projected route propagates once, forward and back, for all slices."""
        count, total, step = len(nodes), 0.0, self.rows_per_step
        whole = self.embed(nodes) if self.route == "projected" else None
        gradients = []
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            part = None if whole is None else whole[rows].detach().requires_grad_()
            value = loss(self(nodes[rows]) if part is None else self.encode(part), rows)
            value.backward()
            total += float(value.detach())
            if part is not None:
                assert part.grad is not None
                gradients.append(part.grad)
        if whole is not None:
            whole.backward(torch.cat(gradients))
        return total

    def embed(self, nodes: Tensor) -> Tensor:
        """The first layer's output: (B,) -> (B, K+1, hidden)."""
        return bound(self._tokens).source.embed(nodes, self.input)

    def from_tokens(self, compute: Callable[[Tensor], Tensor], nodes: Tensor) -> Tensor:
        """``compute`` applied to the first layer's output of the nodes, without gradients."""
        return bound(self._tokens).compute(nodes, self.input, compute, lambda tokens: compute(self.input(tokens)))
