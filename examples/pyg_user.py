"""PolyFormer in a PyTorch Geometric pipeline: a transform writes tokens, and plain mini-batches train on them."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch_geometric.data import Data
from torch_geometric.transforms import Compose, NormalizeFeatures

import polyformer as pf

EPOCHS = 20


def two_communities(num_nodes: int = 200) -> Data:
    """Nodes of two classes that are linked to their own class, with noisy features."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (num_nodes,), generator=generator)
    x = torch.rand(num_nodes, 8, generator=generator)
    x[:, 0] += 0.5 * y
    pairs = torch.randint(0, num_nodes, (2, 12 * num_nodes), generator=generator)
    return Data(x=x, y=y, edge_index=pairs[:, y[pairs[0]] == y[pairs[1]]])


def main() -> None:
    """Train with the tools of PyG and torch alone; only the transform and the model are of this library."""
    torch.manual_seed(0)
    data = Compose([NormalizeFeatures(), pf.PolyTokens("chebyshev", order=4)])(two_communities())
    model = pf.PolyFormer(in_channels=-1, hidden_channels=16, out_channels=2, order=4)
    train = torch.arange(len(data.y)) % 2 == 0
    loader = DataLoader(TensorDataset(data.tokens[train], data.y[train]), batch_size=32, shuffle=True)
    model(data.tokens[:1])  # the first tokens tell the width
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(EPOCHS):
        for tokens, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(tokens), labels).backward()
            optimizer.step()
    with torch.no_grad():
        right = model(data.tokens[~train]).argmax(dim=1) == data.y[~train]
    print(f"accuracy on the other nodes: {right.float().mean():.2f}")


if __name__ == "__main__":
    main()
