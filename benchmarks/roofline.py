r"""What a machine can do at most, measured, and what an epoch of PolyFormer must do at least, counted.

Products are counted from the model's formula: what algebra saves lowers the time and not the count, so that a share of
the machine's rate is comparable between implementations. Rates are the best of several repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["epoch_products", "forward_products", "kernel_rate", "limit_of", "torch_rate"]

Clock = Callable[[], float]

_SIZE = 1024


def forward_products(
    in_channels: int,
    out_channels: int,
    *,
    order: int,
    hidden_channels: int,
    num_layers: int,
    ffn_channels: int,
    mlp_ratio: float,
) -> int:
    r"""Multiply-adds of one node's forward pass over its K+1 stored tokens; biases and activations are not counted.

    With C channels and an inner width of m = int(mlp_ratio · C), a token costs :math:`d C` in the input layer and, in
    each block, :math:`2 C m` in its order-wise MLP, :math:`2 C^2` for Q and K, :math:`2 (K+1) C` in the products of
    attention and :math:`2 C f` in the FFN; the read-out costs :math:`C^2 + C\,\mathrm{out}`.

    >>> forward_products(7, 1, order=1, hidden_channels=2, num_layers=1, ffn_channels=3, mlp_ratio=2.0)
    122
    """
    channels, inner, tokens = hidden_channels, int(mlp_ratio * hidden_channels), order + 1
    block = 2 * channels * inner + 2 * channels**2 + 2 * tokens * channels + 2 * channels * ffn_channels
    return tokens * (in_channels * channels + num_layers * block) + channels * (channels + out_channels)


def epoch_products(one_forward: int, input_layer: int, num_train: int, num_val: int) -> int:
    """Multiply-adds of an epoch: a training step on all training nodes, and a forward pass over the validation nodes.

    A gradient costs two products for each of the forward pass: that of the inputs and that of the weights. The tokens
    are inputs without gradient, so their layer has only the latter.

    Args:
        one_forward: :func:`forward_products`.
        input_layer: the multiply-adds among them of the layer that reads the tokens.

    >>> epoch_products(100, 10, num_train=2, num_val=1)
    680
    """
    return num_train * (3 * one_forward - input_layer) + num_val * one_forward


def limit_of(model: Any, task: Any, settings: dict[str, Any], clock: Clock = time.perf_counter) -> dict[str, float]:
    """What bounds an epoch of a bound model with these settings: multiply-adds, and seconds of sparse work.

    A model that propagates inside itself has no layer that reads tokens. Instead it multiplies features and propagates,
    forward and back for training and forward for validation: that is measured, by the model's own functions.
    """
    names = ("order", "hidden_channels", "num_layers", "ffn_channels", "mlp_ratio")
    split = task.splits[0]
    stored = model.route != "projected"
    width, out = task.graph.num_features if stored else 0, task.objective.out_channels(task.num_classes)
    one = forward_products(width, out, **{name: settings[name] for name in names})
    reading = (settings["order"] + 1) * width * settings["hidden_channels"]
    products = epoch_products(one, reading, len(split.train), len(split.val))
    return {"products": products, "sparse_seconds": 0.0 if stored else sparse_seconds(model, split, clock)}


def sparse_seconds(model: Any, split: Any, clock: Clock) -> float:
    """Seconds of the projected input layer in an epoch: forward and back for training, forward for validation."""
    train, val = torch.from_numpy(split.train), torch.from_numpy(split.val)

    def work() -> None:
        hidden = model.embed(train)
        hidden.backward(hidden.detach())
        with torch.no_grad():
            model.embed(val)

    taken = seconds(work, clock, repeats=3)
    model.zero_grad(set_to_none=True)
    return taken


def torch_rate(clock: Clock = time.perf_counter) -> float:
    """Multiply-adds a second of torch's float32 matrix product, the best of some sizes."""
    a, b = torch.ones(_SIZE, _SIZE), torch.ones(_SIZE, _SIZE)
    tall, wide = torch.ones(4 * _SIZE, 256), torch.ones(256, 256)
    large = _SIZE**3 / seconds(lambda: torch.mm(a, b), clock)
    return max(large, 4 * _SIZE * 256**2 / seconds(lambda: torch.mm(tall, wide), clock))


def kernel_rate(clock: Clock = time.perf_counter) -> float | None:
    """Multiply-adds a second of the native kernel's product; None where it leaves products to torch."""
    from polyformer.nn.products import matmul, multiplies

    a, b = torch.ones(1, 4 * _SIZE, 256), torch.ones(1, 256, 256)
    if not multiplies(a):
        return None
    out = torch.empty(1, 4 * _SIZE, 256)
    return 4 * _SIZE * 256**2 / seconds(lambda: matmul(a, b, out=out), clock)


def seconds(work: Callable[[], object], clock: Clock, repeats: int = 12) -> float:
    """The least time of several."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)
