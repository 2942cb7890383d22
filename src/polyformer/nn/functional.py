"""Functions that torch computes in many passes over memory, fused: attention over few tokens, dropout, bias with ReLU.

Float32 tensors on the CPU go to the native kernel, all other tensors through torch; both compute the same function and
its gradient. The native kernel refuses second derivatives; torch computes them in float64. Where functions are
compiled, recorded or transformed, all tensors go through torch: see :mod:`polyformer.nn.tracing`.
Dropout masks of the native kernel are hashes of a seed from torch's generator, so ``torch.manual_seed`` repeats them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from polyformer.native import call, is_available
from polyformer.nn.tracing import has_addresses

__all__ = ["Dropout", "add_dropout", "bias_relu", "dropout_mask", "is_native", "poly_attention"]

_PADDED = (8, 16, 32, 64)


def poly_attention(query_key: Tensor, values: Tensor, bias: Tensor, factor: float, dropout: float = 0.0) -> Tensor:
    r"""tanh attention per head: :math:`H'_q = \sum_j \tanh(Q_q · K_j · \mathrm{factor})\, b_j\, V_j`.

    Args:
        query_key: (K+1, B, 2·hidden), the queries and then the keys of every token.
        values: (B, K+1, C).
        bias: (H, K+1), the factor of each key order.
        dropout: probability with which a weight is dropped.

    Returns:
        (B, K+1, C).
    """
    tokens = values.shape[1]
    if is_native(query_key, values, bias) and tokens <= _PADDED[-1]:
        return _Attention.apply(query_key.contiguous(), values.contiguous(), bias.contiguous(), factor, dropout)
    heads = bias.shape[0]
    both = query_key.permute(1, 0, 2).unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
    query, key = both.unbind()  # (B, H, K+1, d_head)
    weights = (query @ key.transpose(-1, -2) * factor).tanh() * bias[:, None, :]  # (B, H, K+1, K+1)
    if dropout:  # one of probability 0 too would be recorded, and drawn for by vmap
        weights = functional.dropout(weights, dropout)
    grouped = values.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, H, K+1, C/H)
    return (weights @ grouped).transpose(1, 2).flatten(-2)


def add_dropout(residual: Tensor, x: Tensor, probability: float, training: bool) -> Tensor:
    """``residual + dropout(x)`` in one pass."""
    if not training or probability == 0.0:
        return residual + x
    if is_native(residual, x) and x.numel() < 2**32:
        return _AddDropout.apply(residual, x, probability)
    return residual + functional.dropout(x, probability)


class Dropout(nn.Dropout):
    """``torch.nn.Dropout`` with the masks of :func:`add_dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.p > 0.0 and is_native(x) and x.numel() < 2**32:
            return _AddDropout.apply(None, x, self.p)
        return super().forward(x)


def bias_relu(x: Tensor, bias: Tensor) -> Tensor:
    """``relu(x + bias)`` with a bias per group, in place on ``x``: (J, B, C), (J, 1, C) -> (J, B, C)."""
    if is_native(x, bias) and x.is_contiguous():
        return _BiasReLU.apply(x, bias)
    return (x + bias).relu_()


def is_native(*tensors: Tensor) -> bool:
    """Whether the native kernel takes these tensors."""
    if not has_addresses():
        return False
    for tensor in tensors:
        if tensor.dtype is not torch.float32 or not tensor.is_cpu:
            return False
    return is_available()


def dropout_mask(probability: float) -> dict[str, Any]:
    """Seed, threshold and scale of a fresh dropout mask, as arguments of the kernel."""
    seed = int(torch.randint(0, 2**32, (), dtype=torch.int64)) if probability else 0
    threshold = min(round(probability * 2**32), 2**32 - 1)
    return {"seed": seed, "threshold": threshold, "keep": 1 / (1 - probability)}


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_key: Tensor, values: Tensor, bias: Tensor, factor: float, dropout: float) -> Tensor:
        tokens, nodes, width = query_key.shape
        heads = bias.shape[0]
        padded = next(size for size in _PADDED if size >= tokens)
        scores = torch.empty(nodes, heads, tokens, padded)
        out = torch.empty_like(values)
        ctx.numbers = {
            "nodes": nodes,
            "heads": heads,
            "tokens": tokens,
            "padded": padded,
            "head_width": width // 2 // heads,
            "value_width": values.shape[2] // heads,
            "factor": factor,
            **dropout_mask(dropout),
        }
        ctx.save_for_backward(query_key, values, bias, scores)
        call("attention_forward", **ctx.numbers, query_key=query_key, values=values, bias=bias, scores=scores, out=out)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # The inputs are arguments so that torch sees that the result depends on them, and refuses a second derivative.
        return _Attention._gradients(ctx, gradients[0], *ctx.saved_tensors)

    @staticmethod
    @once_differentiable
    def _gradients(
        ctx: Any, gradient: Tensor, query_key: Tensor, values: Tensor, bias: Tensor, scores: Tensor
    ) -> tuple[Tensor | None, ...]:
        gradient = gradient.contiguous()
        grads = torch.empty_like(query_key), torch.empty_like(values), torch.empty_like(bias)
        call(
            "attention_backward",
            **ctx.numbers,
            query_key=query_key,
            values=values,
            bias=bias,
            scores=scores,
            out_grad=gradient,
            query_key_grad=grads[0],
            values_grad=grads[1],
            bias_grad=grads[2],
        )
        return *grads, None, None


class _AddDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor | None, x: Tensor, probability: float) -> Tensor:
        ctx.mask, ctx.alone = dropout_mask(probability), residual is None
        return _apply_mask(x.contiguous(), None if residual is None else residual.contiguous(), ctx.mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        of_x = _apply_mask(gradients[0].contiguous(), None, ctx.mask)
        return None if ctx.alone else gradients[0], of_x, None


class _BiasReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        ctx.sizes = dict(zip(("groups", "rows", "width"), x.shape, strict=True))
        call("bias_relu", **ctx.sizes, bias=bias.contiguous(), x=x)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (out,), gradient = ctx.saved_tensors, gradients[0].contiguous()
        x_grad, bias_grad = torch.empty_like(out), out.new_empty(out.shape[0], 1, out.shape[2])
        call("bias_relu_backward", **ctx.sizes, out=out, grad=gradient, x_grad=x_grad, bias_grad=bias_grad)
        return x_grad, bias_grad


def _apply_mask(x: Tensor, residual: Tensor | None, mask: dict[str, Any]) -> Tensor:
    out = torch.empty_like(x)
    call("dropout", count=x.numel(), x=x, residual=residual, **mask, out=out)
    return out
