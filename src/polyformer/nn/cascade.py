"""The cascade: stages of node-wise polynomial filters of a hidden representation, with a ReLU between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from polyformer.bases import check_order
from polyformer.errors import InvalidParameter
from polyformer.nn.functional import Dropout
from polyformer.nn.polyattn import PolyAttn
from polyformer.nn.resetting import reset_children
from polyformer.nn.stage_functions import finish_stage, gate_coefficients, gate_tokens
from polyformer.parameter_checks import check_dropout, check_heads, check_positive
from polyformer.registry import suggest

__all__ = ["COEFFICIENTS", "FORMS", "NORMS", "Cascade", "CascadeStage", "TokensOf"]

TokensOf = Callable[[Tensor], Tensor]
"""H -> g_0(P) H, …, g_K(P) H of all nodes: (N, C) -> (N, K+1, C)."""

FORMS = ("id", "none")
NORMS: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": nn.Identity}
COEFFICIENTS = ("tanh", "none", "polyattn")


class GateScores(nn.Module):
    r"""α of every node from its tokens: :math:`α_{hk} = β_{hk} \tanh(\mathrm{LN}(t) · w_{hk} / \sqrt{n} + b_{hk})`.

    t are the n = (K+1) C numbers of all tokens. LN has no parameters; without it, tokens that grow from stage to stage
    drive all tanh to ±1 and all nodes to the same α. Without the division, one step of Adam changes a score by n times
    the learning rate.

    Shapes:
        (N, K+1, C) -> (N, H, K+1).
    """

    def __init__(self, channels: int, num_tokens: int, heads: int, normalise: bool) -> None:
        super().__init__()
        self.normalise = normalise
        self.factor = (num_tokens * channels) ** -0.5
        self.scores = nn.Linear(num_tokens * channels, heads * num_tokens)
        self.order_bias = nn.Parameter(torch.empty(heads, num_tokens))
        self._start_at_one()

    def _start_at_one(self) -> None:
        """All nodes start with α = 1: the stage begins as one without coefficients, and no order is cut off."""
        nn.init.zeros_(self.scores.weight)
        nn.init.ones_(self.scores.bias)
        nn.init.constant_(self.order_bias, 1 / math.tanh(1.0))

    def reset_parameters(self) -> None:
        """Parameters as the constructor leaves them."""
        self.scores.reset_parameters()
        self._start_at_one()

    def filter_coefficients(self, tokens: Tensor) -> Tensor:
        """α: (N, K+1, C) -> (N, H, K+1)."""
        return gate_coefficients(tokens, *self._linear(), self.order_bias, self.normalise)

    def forward(self, tokens: Tensor) -> Tensor:
        """α_k T_k, head by head: (N, K+1, C) -> (N, K+1, C)."""
        return gate_tokens(tokens, *self._linear(), self.order_bias, self.normalise)

    def _linear(self) -> tuple[Tensor, Tensor]:
        """w / √((K+1) C) and b."""
        return self.scores.weight * self.factor, self.scores.bias


class AttentionScores(nn.Module):
    """α of every node from a whole PolyAttn: (N, K+1, C) -> (N, H, K+1)."""

    def __init__(self, channels: int, order: int, heads: int) -> None:
        super().__init__()
        self.attention = PolyAttn(channels, order, heads, decay=0.0)

    def filter_coefficients(self, tokens: Tensor) -> Tensor:
        """α: (N, K+1, C) -> (N, H, K+1)."""
        return self.attention.filter_coefficients(tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        alpha = self.filter_coefficients(tokens).transpose(1, 2)  # (N, K+1, H)
        return (tokens.unflatten(2, (alpha.shape[2], -1)) * alpha[..., None]).flatten(2)


class CascadeStage(nn.Module):
    r"""One stage: tokens of H, weighted node by node, mixed by one matrix an order, normalised, ReLU.

    .. math::
        Z_i = \sum_k (α_k^{(i)} ⊙ T_{k,i}) W_k + b, \qquad
        H' = H + \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(Z)))

    with :math:`T_k = g_k(P) H`; ``form="none"`` leaves out the first term of H'. α has one value for each head's group
    of channels.

    Shapes:
        hidden (N, C), tokens (N, K+1, C) -> (N, C).
    """

    def __init__(
        self, channels: int, order: int, heads: int, form: str, norm: str, coefficient: str, dropout: float,
        normalise_scores: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        num_tokens = order + 1
        self.num_tokens, self.heads, self.form, self.dropout = num_tokens, heads, form, dropout
        self.gate: GateScores | AttentionScores | None = None
        if coefficient == "tanh":
            self.gate = GateScores(channels, num_tokens, heads, normalise_scores)
        elif coefficient == "polyattn":
            self.gate = AttentionScores(channels, order, heads)
        # Batch normalisation takes the mean away, and with it any bias.
        self.mixing = nn.Linear(num_tokens * channels, channels, bias=norm != "batch")
        self.norm = NORMS[norm](channels)

    def forward(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        weighted = tokens if self.gate is None else self.gate(tokens)  # (N, K+1, C)
        residual = hidden if self.form == "id" else None
        return finish_stage(self.mixing(weighted.flatten(1)), residual, self.norm, self.dropout, self.training)

    def filter_coefficients(self, tokens: Tensor) -> Tensor:
        """α of every node: (N, K+1, C) -> (N, H, K+1); ones where no coefficients are learned."""
        if self.gate is None:
            return tokens.new_ones(len(tokens), self.heads, self.num_tokens)
        return self.gate.filter_coefficients(tokens)


class Cascade(nn.Module):
    r"""Node classifier or regressor: :math:`H^0 = \mathrm{drop}(\mathrm{ReLU}(XW + b))`, L stages, one Linear.

    Args:
        in_channels: d.
        hidden_channels: C, width inside.
        out_channels: number of outputs per node.
        order: K of every stage.
        num_layers: L stages.
        heads: groups of channels that share a coefficient; must divide ``hidden_channels``.
        form: ``id`` adds a stage's input to its output, ``none`` does not.
        norm: ``batch``, ``layer`` or ``none``.
        coefficient: ``tanh`` of a linear score, ``polyattn`` for a whole PolyAttn, ``none`` for α = 1.
        dropout: on H⁰ and on every stage's output before it is added.
        normalise_scores: normalise what the linear score sees.

    Shapes:
        H⁰ before its ReLU, (N, C), and a function that gives tokens of any (N, C) -> (N, out_channels).

    Example:
        >>> model = Cascade(7, 16, 2, order=2, num_layers=3)
        >>> path = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        >>> tokens_of = lambda hidden: torch.stack([hidden, path @ hidden, path @ path @ hidden], dim=1)
        >>> model(model.input(torch.randn(3, 7)), tokens_of).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        order: int,
        num_layers: int = 4,
        heads: int = 4,
        form: str = "id",
        norm: str = "batch",
        coefficient: str = "tanh",
        dropout: float = 0.0,
        normalise_scores: bool = True,
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, out_channels=out_channels, num_layers=num_layers)
        check_heads(heads, hidden_channels=hidden_channels)
        choices = {"form": (form, FORMS), "norm": (norm, NORMS), "coefficient": (coefficient, COEFFICIENTS)}
        for name, (value, known) in choices.items():
            if value not in known:
                raise InvalidParameter(f"Unknown {name} '{value}'. {suggest(value, known)}")
        self.order = check_order(order)
        stage = (hidden_channels, order, heads, form, norm, coefficient, dropout, normalise_scores)
        self.input = nn.Linear(in_channels, hidden_channels)
        self.dropout = Dropout(check_dropout("dropout", dropout))
        self.stages = nn.ModuleList(CascadeStage(*stage) for _ in range(num_layers))
        self.output = nn.Linear(hidden_channels, out_channels)

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does."""
        reset_children(self)

    def forward(self, projected: Tensor, tokens_of: TokensOf) -> Tensor:
        return self.output(self._before(projected, tokens_of, len(self.stages)))

    def filter_coefficients(self, projected: Tensor, tokens_of: TokensOf, layer: int = 0) -> Tensor:
        """α of every node in a stage, of g_k(P) applied to that stage's input: (N, H, K+1)."""
        hidden = self._before(projected, tokens_of, layer)
        return cast(CascadeStage, self.stages[layer]).filter_coefficients(tokens_of(hidden))

    def _before(self, projected: Tensor, tokens_of: TokensOf, layer: int) -> Tensor:
        """The input of a stage; the output of the last for ``layer`` = L: (N, C)."""
        hidden = self.dropout(projected.relu())
        for stage in self.stages[:layer]:
            hidden = stage(hidden, tokens_of(hidden))
        return hidden
