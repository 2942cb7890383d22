"""PolyAttn: attention over a node's K+1 tokens that is exactly a node-wise spectral filter."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyformer.bases import check_order
from polyformer.errors import InvalidParameter
from polyformer.nn.functional import bias_relu, poly_attention
from polyformer.nn.products import apply_linear, multiplies, order_mlps
from polyformer.nn.resetting import reset_children
from polyformer.nn.thin_products import Factors
from polyformer.nn.tracing import is_recorded
from polyformer.parameter_checks import check_dropout, check_heads, check_positive
from polyformer.registry import suggest

__all__ = ["ACTIVATIONS", "OrderMLPs", "PolyAttn"]

ACTIVATIONS = ("tanh", "softmax")


class OrderMLPs(nn.Module):
    """One two-layer MLP per order, all K+1 in batched products: (B, K+1, C) -> (K+1, B, out).

    MLP_j is Linear(C, inner) - ReLU - Linear(inner, out), each initialised as ``nn.Linear``.
    """

    def __init__(self, num_tokens: int, in_channels: int, inner_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight1 = nn.Parameter(torch.empty(num_tokens, in_channels, inner_channels))
        self.bias1 = nn.Parameter(torch.empty(num_tokens, 1, inner_channels))
        self.weight2 = nn.Parameter(torch.empty(num_tokens, inner_channels, out_channels))
        self.bias2 = nn.Parameter(torch.empty(num_tokens, 1, out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1/√fan_in, as ``nn.Linear``."""
        for weight, bias in ((self.weight1, self.bias1), (self.weight2, self.bias2)):
            bound = 1 / math.sqrt(weight.shape[1])
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)

    def forward(self, tokens: Tensor, factors: Factors | None = None) -> Tensor:
        return self._apply_layers(tokens, factors, self.weight2, self.bias2)

    def followed_by(self, linear: Tensor, tokens: Tensor, factors: Factors | None = None) -> Tensor:
        """The MLPs and then ``linear`` (out', out) without bias: (B, K+1, C) -> (K+1, B, out').

        The second layer and ``linear`` are multiplied first where that is less work for B rows: B inner out' plus
        inner out out' for their product, instead of B out (inner + out'). A record must suit every B, so the product of
        the parameters is not counted there.
        """
        inner, out, width = *self.weight2.shape[1:], len(linear)
        rows, product = (1, 0) if is_recorded() else (len(tokens), inner * out * width)
        if rows * out * (inner + width) <= rows * inner * width + product:
            return apply_linear(self(tokens, factors), linear)
        return self._apply_layers(tokens, factors, apply_linear(self.weight2, linear), apply_linear(self.bias2, linear))

    def _apply_layers(self, tokens: Tensor, factors: Factors | None, weight2: Tensor, bias2: Tensor) -> Tensor:
        """Both layers with the given second one: (B, K+1, C) -> (K+1, B, out)."""
        left, weight1 = (tokens, self.weight1) if factors is None else (factors.left, factors.right @ self.weight1)
        if multiplies(left, weight1, self.bias1, weight2, bias2):
            return order_mlps(left, weight1, self.bias1, weight2, bias2)
        inner = bias_relu(torch.bmm(left.transpose(0, 1), weight1), self.bias1)  # (K+1, B, inner)
        return torch.baddbmm(bias2, inner, weight2)


class PolyAttn(nn.Module):
    r"""Attention over the K+1 tokens of each node; Algorithm 1 of the paper and its multi-head form.

    .. math::
        S_{h,q,j} = σ(Q_h K_h^T / \sqrt{d_{head}})_{q,j} · β_{h,j} / (j+1)^r, \qquad H' = S V

    Q and K are linear in the order-wise MLPs of the tokens; the values V are the tokens themselves. So, in each
    head's group of channels, :math:`\sum_q H'_q = \sum_j α_j V_j` with :math:`α_j = \sum_q S_{q,j}`: on polynomial
    tokens the layer is the filter :math:`\sum_j α_j g_j(λ)`, which differs by node (Theorem 3.1, Proposition 3.1).

    Args:
        channels: C, width of the tokens.
        order: K.
        heads: number of heads; must divide ``channels`` and ``hidden_channels``.
        hidden_channels: width of the MLPs' output and of Q and K; ``channels`` by default.
        mlp_ratio: the MLPs' inner width is int(mlp_ratio · hidden_channels).
        decay: r; the larger r, the smaller the weights of high orders at the start.
        activation: ``tanh``, or ``softmax`` over the keys as in ordinary attention.
        scale: divide by √d_head. The paper's text does not; its published results do.
        dropout: dropout of the biased scores, in training.

    Shapes:
        (B, K+1, C) -> (B, K+1, C).

    Example:
        >>> layer = PolyAttn(channels=4, order=2, heads=2).eval()
        >>> tokens = torch.randn(5, 3, 4)
        >>> alpha = layer.filter_coefficients(tokens)
        >>> filtered = torch.einsum("bhk,bkhc->bhc", alpha, tokens.unflatten(-1, (2, 2))).flatten(1)
        >>> torch.allclose(layer(tokens).sum(1), filtered, atol=1e-6)
        True
    """

    decays: Tensor

    def __init__(
        self,
        channels: int,
        order: int,
        heads: int = 1,
        hidden_channels: int | None = None,
        mlp_ratio: float = 1.0,
        decay: float = 1.0,
        activation: str = "tanh",
        scale: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        hidden_channels = channels if hidden_channels is None else hidden_channels
        check_positive(channels=channels, heads=heads, hidden_channels=hidden_channels)
        check_heads(heads, hidden_channels=hidden_channels, channels=channels)
        if activation not in ACTIVATIONS:
            raise InvalidParameter(f"Unknown activation '{activation}'. {suggest(activation, ACTIVATIONS)}")
        inner_channels = int(mlp_ratio * hidden_channels)
        if inner_channels < 1:
            raise InvalidParameter(
                f"'mlp_ratio' must make int(mlp_ratio · hidden_channels={hidden_channels}) at least 1. Got {mlp_ratio}."
            )
        self.channels, self.order, self.heads = channels, check_order(order), heads
        self.activation = activation
        self.factor = (hidden_channels // heads) ** -0.5 if scale else 1.0
        num_tokens = self.order + 1
        self.order_mlps = OrderMLPs(num_tokens, channels, inner_channels, hidden_channels)
        self.query = nn.Linear(hidden_channels, hidden_channels, bias=False)
        self.key = nn.Linear(hidden_channels, hidden_channels, bias=False)
        self.order_bias = nn.Parameter(torch.ones(heads, num_tokens))
        self.decay = decay
        self.register_buffer("decays", (torch.arange(num_tokens) + 1.0) ** -decay, persistent=False)
        self.dropout = check_dropout("dropout", dropout)

    @property
    def in_channels(self) -> int:
        """Width of the tokens, which is that of the output too."""
        return self.channels

    @property
    def out_channels(self) -> int:
        """Width of the output."""
        return self.channels

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does; ``decays``, which no file holds, is computed again."""
        reset_children(self)
        nn.init.ones_(self.order_bias)
        self.decays.copy_((torch.arange(self.order + 1) + 1.0) ** -self.decay)

    def forward(self, tokens: Tensor, factors: Factors | None = None) -> Tensor:
        """Attend; where ``factors`` give the tokens as a thin product, the order-wise MLPs have much less work."""
        if self.activation == "tanh":
            dropout = self.dropout if self.training else 0.0
            return poly_attention(self._query_key(tokens, factors), tokens, self._bias(), self.factor, dropout)
        scores = functional.dropout(self.scores(tokens, factors), self.dropout, self.training)  # (B, H, K+1, K+1)
        values = tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, K+1, C/H)
        return (scores @ values).transpose(1, 2).flatten(-2)

    def scores(self, tokens: Tensor, factors: Factors | None = None) -> Tensor:
        """The scores S without dropout: (B, K+1, C) -> (B, H, K+1 queries, K+1 keys)."""
        both = self._query_key(tokens, factors).permute(1, 0, 2).unflatten(-1, (2, self.heads, -1))
        query, key = both.permute(2, 0, 3, 1, 4).unbind()
        products = query @ key.transpose(-1, -2) * self.factor  # (B, H, K+1, K+1)
        weights = products.tanh() if self.activation == "tanh" else products.softmax(dim=-1)
        return weights * self._bias()[:, None, :]

    def _query_key(self, tokens: Tensor, factors: Factors | None) -> Tensor:
        """Queries and keys by one product: (B, K+1, C) -> (K+1, B, 2·hidden)."""
        if tokens.dim() != 3 or tokens.shape[1:] != (self.order + 1, self.channels):
            raise InvalidParameter(
                f"'tokens' must have shape (B, {self.order + 1}, {self.channels}). Got {tuple(tokens.shape)}."
            )
        return self.order_mlps.followed_by(torch.cat([self.query.weight, self.key.weight]), tokens, factors)

    def _bias(self) -> Tensor:
        """β_j / (j+1)^r: (H, K+1)."""
        return self.order_bias * self.decays

    def filter_coefficients(self, tokens: Tensor) -> Tensor:
        """α of each node: (B, K+1, C) -> (B, H, K+1), never with dropout."""
        return self.scores(tokens).sum(dim=2)
