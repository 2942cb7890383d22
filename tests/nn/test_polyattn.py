"""PolyAttn is a node-wise filter: Theorem 3.1, Propositions 3.1 and 3.2, and its formula written out."""

from __future__ import annotations

import pytest
import torch

from polyformer.bases import BASES
from polyformer.errors import InvalidParameter
from polyformer.nn.polyattn import OrderMLPs, PolyAttn
from polyformer.tokens import compute_tokens
from tests.conftest import GRAPHS


def filtered(alpha: torch.Tensor, tokens: torch.Tensor, heads: int) -> torch.Tensor:
    """Σ_k α_k token_k, each head on its own group of channels."""
    grouped = tokens.unflatten(-1, (heads, -1))  # (B, K+1, H, C/H)
    return torch.einsum("bhk,bkhc->bhc", alpha, grouped).flatten(1)


@pytest.mark.parametrize("activation", ["tanh", "softmax"])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize(("channels", "hidden", "heads"), [(12, None, 1), (12, None, 4), (1, 16, 1), (6, 9, 3)])
def test_output_is_a_node_wise_filter(
    channels: int, hidden: int | None, heads: int, scale: bool, activation: str
) -> None:
    """Theorem 3.1 asks nothing of the tokens, so random ones show it."""
    torch.manual_seed(0)
    tokens = torch.randn(30, 5, channels)
    layer = PolyAttn(channels, 4, heads, hidden, 2.0, 1.2, activation, scale, dropout=0.5).eval()
    check_theorem(layer, tokens)


@pytest.mark.parametrize("basis", list(BASES))
def test_output_on_tokens_is_a_node_wise_filter(basis: str) -> None:
    torch.manual_seed(0)
    check_theorem(PolyAttn(11, 4).eval(), compute_tokens(GRAPHS["isolated nodes"](), basis, order=4))


def check_theorem(layer: PolyAttn, tokens: torch.Tensor) -> None:
    with torch.no_grad():
        layer.order_bias.copy_(torch.randn_like(layer.order_bias))
        output, alpha = layer(tokens), layer.filter_coefficients(tokens)
    assert output.shape == tokens.shape
    assert alpha.shape == (len(tokens), layer.heads, tokens.shape[1])
    assert torch.allclose(output.sum(1), filtered(alpha, tokens, layer.heads), atol=1e-4)


def test_scores_follow_the_formula() -> None:
    """S[h, q, j] = tanh(q·k / √d_head) β[h, j] / (j+1)^r with one MLP per order, computed one by one."""
    torch.manual_seed(1)
    layer = PolyAttn(channels=8, order=3, heads=2, mlp_ratio=1.5, decay=1.4).double()
    layer.order_bias.data.uniform_(-1, 1)
    tokens = torch.randn(5, 4, 8, dtype=torch.double)
    mlps = layer.order_mlps
    scores = layer.scores(tokens)
    for node in range(5):
        hidden = torch.stack(
            [
                (tokens[node, j] @ mlps.weight1[j] + mlps.bias1[j, 0]).relu() @ mlps.weight2[j] + mlps.bias2[j, 0]
                for j in range(4)
            ]
        )
        queries, keys = hidden @ layer.query.weight.T, hidden @ layer.key.weight.T
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            expected = torch.tanh(queries[:, part] @ keys[:, part].T / 2.0)
            expected = expected * layer.order_bias[head] / torch.arange(1, 5) ** 1.4
            assert torch.allclose(scores[node, head], expected)


def test_softmax_coefficients_have_the_sign_of_the_bias_and_tanh_need_not() -> None:
    torch.manual_seed(2)
    tokens = 3 * torch.randn(200, 6, 8)
    signs = {}
    for activation in ("softmax", "tanh"):
        layer = PolyAttn(8, 5, heads=2, activation=activation)
        layer.order_bias.data.normal_()
        signs[activation] = layer.filter_coefficients(tokens).sign() == layer.order_bias.sign()
    assert signs["softmax"].all()
    assert not signs["tanh"].all()


def test_coefficients_ignore_dropout() -> None:
    layer = PolyAttn(8, 3, dropout=0.9).train()
    tokens = torch.randn(10, 4, 8)
    assert torch.equal(layer.filter_coefficients(tokens), layer.filter_coefficients(tokens))
    assert not torch.equal(layer(tokens), layer(tokens))


def test_order_mlps_start_like_linear_layers() -> None:
    torch.manual_seed(0)
    mlps = OrderMLPs(num_tokens=4, in_channels=64, inner_channels=128, out_channels=32)
    assert mlps.weight1.abs().max() <= 1 / 8
    assert mlps.weight1.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.05)
    assert mlps.bias2.abs().max() <= 1 / 128**0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 5}, "'heads' must divide hidden_channels=16. Got 5. Try 4."),
        ({"heads": 4, "hidden_channels": 10}, "'heads' must divide hidden_channels=10. Got 4. Try 5."),
        ({"heads": 0}, "'heads' must be a whole number, 1 or more"),
        ({"activation": "relu"}, "Unknown activation 'relu'"),
        ({"dropout": 1.0}, r"'dropout' must lie in \[0, 1\)"),
        ({"mlp_ratio": 0.01}, "'mlp_ratio' must make"),
        ({"order": -1}, "'order' must be a whole number, 0 or more. Got -1"),
    ],
)
def test_bad_parameters(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        PolyAttn(**{"channels": 16, "order": 3, **arguments})


def test_tokens_of_another_shape() -> None:
    with pytest.raises(InvalidParameter, match=r"'tokens' must have shape \(B, 4, 8\). Got \(2, 5, 8\)"):
        PolyAttn(8, 3)(torch.randn(2, 5, 8))
