"""node2vec vectors of all nodes, from uniform random walks (p = q = 1) and skip-gram with negative samples."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from polyformer.graph import Graph
from polyformer.machine_speed import SECONDS_PER_NODE2VEC_STEP
from polyformer.models.contract import Workload
from polyformer.models.parts.precomputed import Effort, precomputed
from polyformer.reporter import SILENT, Reporter

__all__ = ["WALKS", "WALK_LENGTH", "node2vec_encoding", "random_walks"]

WALK_LENGTH, _CONTEXT, WALKS = 20, 5, 10
_BATCH, _LEARNING_RATE = 2048, 0.01


def node2vec_encoding(
    graph: Graph, channels: int, workload: Workload, seed: int = 0, reporter: Reporter = SILENT
) -> np.ndarray:
    r"""Vectors z with :math:`σ(z_u^T z_v)` large for v near u on a walk and small for random v: (N, channels).

    O(N · walks · length · context · channels), cached. Grover and Leskovec, KDD 2016. We wrote our own, as PyTorch
    Geometric's ``Node2Vec`` needs compiled extensions.
    """

    def compute() -> dict[str, np.ndarray]:
        return {"encoding": _train(graph, channels, seed, reporter)}

    effort = Effort(
        f"node2vec vectors of {graph.num_nodes:,} nodes",
        SECONDS_PER_NODE2VEC_STEP * graph.num_nodes * WALKS * WALK_LENGTH * max(1.0, channels / 16),
        16.0 * graph.num_nodes * channels,  # the vectors, two moments and the result
        "Set positional=laplacian or positional_channels=0.",
        workload,
    )
    constants = [WALK_LENGTH, _CONTEXT, WALKS, _BATCH, _LEARNING_RATE]
    parameters = {"channels": channels, "seed": seed, "training": constants}
    return precomputed("node2vec", graph, parameters, compute, effort, reporter)["encoding"]


def random_walks(graph: Graph, starts: np.ndarray, length: int, random: np.random.Generator) -> np.ndarray:
    """Uniform walks: (B,) -> (B, length + 1). A node without neighbours stays where it is."""
    degrees, walks = np.diff(graph.indptr), np.empty((len(starts), length + 1), np.int64)
    walks[:, 0] = starts
    for step in range(length):
        here = walks[:, step]
        offset = (random.random(len(here)) * degrees[here]).astype(np.int64)
        moves = degrees[here] > 0
        walks[:, step + 1] = here
        walks[moves, step + 1] = graph.indices[graph.indptr[here[moves]] + offset[moves]]
    return walks


def _train(graph: Graph, channels: int, seed: int, reporter: Reporter) -> np.ndarray:
    random = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.nn.Embedding(graph.num_nodes, channels, sparse=True)
    with torch.no_grad():
        vectors.weight.copy_(torch.randn(vectors.weight.shape, generator=generator) / channels**0.5)
    optimizer = torch.optim.SparseAdam(list(vectors.parameters()), lr=_LEARNING_RATE)
    starts = np.concatenate([random.permutation(graph.num_nodes) for _ in range(WALKS)])
    for first in range(0, len(starts), _BATCH):
        walks = torch.from_numpy(random_walks(graph, starts[first : first + _BATCH], WALK_LENGTH, random))
        chance = torch.randint(0, graph.num_nodes, walks.shape, generator=generator)
        optimizer.zero_grad()
        _skip_gram_loss(vectors(walks), vectors(chance)).backward()
        optimizer.step()
        reporter.share("node2vec vectors", min(1.0, (first + _BATCH) / len(starts)))
    return vectors.weight.detach().numpy().astype(np.float32)


def _skip_gram_loss(walks: Tensor, chance: Tensor) -> Tensor:
    """The loss that tells pairs up to ``_CONTEXT`` steps apart from random pairs: (B, T, c), (B, T, c) -> scalar."""
    loss = -functional.logsigmoid(-(walks * chance).sum(dim=-1)).mean()
    for gap in range(1, _CONTEXT + 1):
        products = (walks[:, gap:] * walks[:, :-gap]).sum(dim=-1)
        loss = loss - functional.logsigmoid(products).mean() / _CONTEXT
    return loss
