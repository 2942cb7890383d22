"""PolyAttn as one layer of a model of your own, and the filter that it learned for each node."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

import polyformer as pf

EPOCHS = 60


class MyModel(nn.Module):
    """A node-wise filter of the raw features beside a plain look at the node itself."""

    def __init__(self, channels: int, order: int) -> None:
        super().__init__()
        self.attention = pf.PolyAttn(channels, order)
        self.output = nn.Linear(2 * channels, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits from tokens: (B, K+1, C) -> (B,)."""
        filtered = self.attention(tokens).sum(dim=1)  # (B, C): each node's own filter, applied
        return self.output(torch.cat([filtered, tokens[:, 0]], dim=1)).squeeze(1)


def main() -> None:
    """Train on a Minesweeper board and print the responses of three nodes."""
    torch.manual_seed(0)
    task = pf.load_dataset("minefield:width=30,height=30")
    tokens = pf.compute_tokens(task.graph, basis="chebyshev", order=6)  # (N, 7, 7)
    labels = torch.from_numpy(task.labels).float()
    train = torch.from_numpy(task.splits[0].train)
    model = MyModel(tokens.shape[2], order=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(tokens[train]), labels[train])
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")
    lam = np.linspace(0, 2, 5)
    with torch.no_grad():
        alpha = model.attention.filter_coefficients(tokens[:3])[:, 0].numpy()  # (3, 7)
    responses = alpha @ pf.basis_response("chebyshev", order=6, lam=lam)  # (3, 5)
    for node, curve in enumerate(responses):
        print(f"node {node} at λ = 0, 0.5, 1, 1.5, 2: {np.round(curve, 2)}")


if __name__ == "__main__":
    main()
