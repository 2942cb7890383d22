"""Features multiplied by a weight: sparse and dense agree, also in what dropout leaves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyformer.inputs.feature_matrix import FeatureMatrix

DENSE = np.where(np.random.default_rng(0).random((30, 50)) < 0.2, 1.5, 0.0).astype(np.float32)


def both() -> list[FeatureMatrix]:
    return [FeatureMatrix(DENSE), FeatureMatrix(sp.csr_matrix(DENSE))]


def test_sparse_equals_dense() -> None:
    linear, nodes = torch.nn.Linear(50, 9), torch.tensor([3, 3, 29, 0])
    expected = linear(torch.from_numpy(DENSE))
    for features in both():
        assert features.shape == (30, 50)
        assert torch.allclose(features.linear(linear), expected, atol=1e-5)
        assert torch.equal(features.rows(nodes), torch.from_numpy(DENSE)[nodes])
        assert torch.equal(features.to_torch().to_dense(), torch.from_numpy(DENSE))


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_gradient_sees_what_dropout_left(dropout: float) -> None:
    """With the identity as weight the output shows the kept entries; the gradient must be their transpose."""
    for features in both():
        torch.manual_seed(1)
        weight = torch.eye(50, requires_grad=True)
        kept = features.product(weight, dropout)
        target = torch.randn(30, 50)
        (kept * target).sum().backward()
        assert torch.allclose(weight.grad, kept.detach().T @ target, atol=1e-4)
        share = float((kept != 0).sum() / (DENSE != 0).sum())
        assert abs(share - (1 - dropout)) < 0.1
        assert torch.allclose(kept[kept != 0], torch.tensor(1.5 / (1 - dropout)))
