r"""The normalised operator P of a graph, kept as two diagonal scalings around the adjacency pattern.

:math:`P = S (A + c I) S` with :math:`S = D^{-1/2}`, where c is 1 and D counts the loop if ``self_loops``, else 0.
An unweighted graph stores no values. Eigenvalues of P lie in [-1, 1]; those of :math:`\hat L = I - P` are the
frequencies λ in [0, 2]. An isolated node without a loop has a zero row in P, so λ = 1 there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from polyformer.graph import Graph

__all__ = ["Operator"]


@dataclass(frozen=True, eq=False)
class Operator:
    """P of ``graph``, with GCN's normalisation of A + I if ``self_loops``.

    Example:
        >>> path = Graph([[0, 1], [1, 2]])
        >>> Operator(path).to_scipy(np.float64).toarray().round(3)
        array([[0.   , 0.707, 0.   ],
               [0.707, 0.   , 0.707],
               [0.   , 0.707, 0.   ]])
    """

    graph: Graph
    self_loops: bool = False

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.graph.num_nodes

    @cached_property
    def scaling(self) -> np.ndarray:
        """(N,) float64, the diagonal of S. Where the degree is 0 it is 1: any value does, the row of A is empty."""
        scaling = self.graph.degrees  # a fresh array, changed in place: there may be a hundred million nodes
        scaling += 1.0 if self.self_loops else 0.0
        scaling[scaling == 0] = 1.0
        np.sqrt(scaling, out=scaling)
        return np.divide(1.0, scaling, out=scaling)

    @property
    def key(self) -> dict[str, Any]:
        """What tokens depend on besides features and order."""
        return {"structure": self.graph.structure_fingerprint, "self_loops": self.self_loops}

    def to_scipy(self, dtype: Any = np.float32) -> sp.csr_matrix:
        """P written out as a scipy CSR matrix."""
        adjacency = self.graph.adjacency(np.float64)
        if self.self_loops:
            adjacency = (adjacency + sp.identity(self.num_nodes, format="csr")).tocsr()
        scaling = sp.diags(self.scaling)
        return (scaling @ adjacency @ scaling).tocsr().astype(dtype)
