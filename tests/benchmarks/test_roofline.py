"""The count of multiply-adds against torch's own counter, on the literal implementation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.literal import LiteralPolyFormer
from benchmarks.roofline import epoch_products, forward_products, limit_of
from benchmarks.training import our_trainer
from polyformer.datasets import load_dataset

SHAPES = [
    {"order": 4, "hidden_channels": 16, "num_layers": 2, "ffn_channels": 24, "mlp_ratio": 2.0},
    {"order": 1, "hidden_channels": 8, "num_layers": 1, "ffn_channels": 4, "mlp_ratio": 0.5},
]


def counted(shape: dict[str, Any], num_train: int, num_val: int) -> int:
    """What torch counts in a training pass and a validation pass of the literal implementation."""
    model = LiteralPolyFormer(7, out_channels=3, heads=2, decay=1.0, dropout=0.0, attention_dropout=0.0, **shape)
    tokens = shape["order"] + 1
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(num_train, tokens, 7)).sum().backward()
        with torch.no_grad():
            model(torch.randn(num_val, tokens, 7))
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("shape", SHAPES)
def test_an_epoch_has_as_many_products_as_torch_counts(shape: dict[str, Any]) -> None:
    one = forward_products(7, 3, **shape)
    reading = (shape["order"] + 1) * 7 * shape["hidden_channels"]
    assert counted(shape, 0, 5) == 5 * one
    assert epoch_products(one, reading, 20, 5) == counted(shape, 20, 5)


@pytest.mark.parametrize("route", ["stored", "projected"])
def test_a_bound_model_has_a_limit(route: str) -> None:
    task = load_dataset("minefield:width=20,height=10")
    settings = SHAPES[0] | {"basis": "chebyshev", "heads": 2, "token_route": route, "batch_size": "full"}
    bound = limit_of(our_trainer(task, settings).model, task, settings)
    width = task.graph.num_features if route == "stored" else 0
    one = forward_products(width, 1, **SHAPES[0])
    split = task.splits[0]
    assert bound["products"] == epoch_products(one, 5 * width * 16, len(split.train), len(split.val))
    assert (bound["sparse_seconds"] > 0) == (route == "projected")
