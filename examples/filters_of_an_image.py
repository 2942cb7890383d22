"""Another filter for each part of a picture: the left half is blurred, the right half shows its edges.

Pixels are nodes of a grid. One filter for all pixels cannot do both; PolyAttn learns a filter for each pixel.
"""

from __future__ import annotations

import numpy as np
import torch

import polyformer as pf

SIDE, STEPS = 24, 300


def picture() -> np.ndarray:
    """(SIDE², 2): brightness, and the column of each pixel, by which a pixel can know its half."""
    across, down = np.meshgrid(np.linspace(-1, 1, SIDE), np.linspace(-1, 1, SIDE))
    brightness = (np.hypot(across, down) < 0.7) + 0.3 * np.random.default_rng(0).standard_normal(across.shape)
    return np.stack([brightness.ravel(), across.ravel()], axis=1).astype(np.float32)


def grid() -> np.ndarray:
    """(2, E): each pixel and its neighbours to the right and below."""
    numbers = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    right = numbers[:, :-1].ravel(), numbers[:, 1:].ravel()
    below = numbers[:-1].ravel(), numbers[1:].ravel()
    return np.concatenate([right, below], axis=1)


def main() -> None:
    """Fit the filters to the two halves and print the mean response of each."""
    torch.manual_seed(0)
    pixels = picture()
    tokens = pf.compute_tokens(pf.Graph(grid(), pixels), basis="chebyshev", order=6)  # (N, 7, 2)
    low, high = np.zeros(7), np.zeros(7)
    low[:3], high[:3] = (0.375, -0.5, 0.125), (0.375, 0.5, 0.125)  # (2 - λ)²/4 and λ²/4 in Chebyshev form
    left = torch.from_numpy(pixels[:, 1] < 0)
    wanted = torch.where(left[:, None], torch.from_numpy(low), torch.from_numpy(high)).float()  # (N, 7)
    target = (wanted * tokens[:, :, 0]).sum(dim=1)
    layer = pf.PolyAttn(channels=2, order=6, hidden_channels=32)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (layer(tokens).sum(dim=1)[:, 0] - target).square().mean()
        loss.backward()
        optimizer.step()
    print(f"share of the target that is not explained: {loss.item() / target.var().item():.3f}")
    with torch.no_grad():
        alpha = layer.filter_coefficients(tokens)[:, 0].numpy()  # (N, 7)
    responses = alpha @ pf.basis_response("chebyshev", order=6, lam=np.array([0.2, 1.0, 1.8]))  # (N, 3)
    for name, half in (("left", left.numpy()), ("right", ~left.numpy())):
        print(f"{name} half at λ = 0.2, 1, 1.8: {np.round(responses[half].mean(axis=0), 2)}")


if __name__ == "__main__":
    main()
