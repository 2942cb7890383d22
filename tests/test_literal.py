"""The fast implementation and the literal one of the benchmarks are the same mathematics: their loss curves agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.literal import LiteralPolyFormer, copy_weights
from polyformer.datasets import load_dataset
from polyformer.models import Workload
from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings
from polyformer.tokens import compute_tokens

TASK = load_dataset("minefield:width=25,height=24")


@pytest.mark.parametrize("route", ["stored", "projected"])
@pytest.mark.parametrize(
    ("dtype", "epochs", "tolerance"), [(torch.float64, 20, 1e-6), (torch.float32, 1, 1e-5)], ids=["double", "single"]
)
def test_loss_curves_agree(route: str, dtype: torch.dtype, epochs: int, tolerance: float) -> None:
    """Full batches, dropout off, the same initial weights, Adam with the attention's own learning rate."""
    settings = PolyFormerSettings(
        basis="chebyshev", order=5, num_layers=2, heads=4, hidden_channels=16, decay=1.4, dropout=0.0,
        attention_dropout=0.0, attention_lr=5e-3, token_route=route,
    )  # fmt: skip
    torch.manual_seed(0)
    ours = PolyFormerModel(7, 1, settings)
    literal = LiteralPolyFormer(7, 16, 1, 5, 2, 4, 16, settings.mlp_ratio, 1.4, 0.0, 0.0)
    copy_weights(ours.network, literal)
    ours, literal = ours.to(dtype), literal.to(dtype)
    ours.bind(TASK.graph, Workload(None, 600))
    tokens = compute_tokens(TASK.graph, "chebyshev", 5).to(dtype)
    train = torch.from_numpy(TASK.splits[0].train)
    labels = torch.from_numpy(TASK.labels)[train]
    chosen = {id(parameter) for parameter in literal.attention_parameters()}
    rest = [parameter for parameter in literal.parameters() if id(parameter) not in chosen]
    groups = [{"params": rest}, {"params": literal.attention_parameters(), "lr": 5e-3}]
    optimizers = [torch.optim.Adam(ours.parameter_groups(), 1e-3), torch.optim.Adam(groups, 1e-3)]
    loss = TASK.objective.loss
    curves: tuple[list[float], list[float]] = ([], [])
    for _ in range(epochs):
        for optimizer in optimizers:
            optimizer.zero_grad()
        curves[0].append(ours.accumulate(train, lambda out, rows: loss(out, labels[rows]) / len(train)))
        value = loss(literal(tokens)[train], labels) / len(train)
        value.backward()
        curves[1].append(float(value.detach()))
        for optimizer in optimizers:
            optimizer.step()
    assert np.allclose(*curves, rtol=0, atol=tolerance)
    if epochs > 1:
        assert curves[0][-1] < curves[0][0]
