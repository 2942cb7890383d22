"""Node-level learning on graphs with node-wise spectral filters: PolyAttn and PolyFormer.

The names below are loaded when they are first used, so ``import polyformer`` is quick.
"""

from __future__ import annotations

import importlib

from polyformer.version import __version__

TYPE_CHECKING = False  # typing takes a while to load, and until the command line runs Ctrl-C gives a traceback
if TYPE_CHECKING:
    from typing import Any

    from polyformer import errors
    from polyformer.bases import (
        Bernstein,
        Chebyshev,
        FixedBasis,
        Jacobi,
        Legendre,
        Monomial,
        Optimal,
        basis_response,
        list_bases,
    )
    from polyformer.datasets import load_dataset
    from polyformer.estimators import PolyFormerClassifier, PolyFormerRegressor
    from polyformer.graph import Graph
    from polyformer.nn.polyattn import PolyAttn
    from polyformer.nn.polyformer import PolyFormer
    from polyformer.runs.run import Run
    from polyformer.runs.train import train
    from polyformer.splits import Split
    from polyformer.tasks import Task
    from polyformer.tokens import compute_tokens, open_tokens
    from polyformer.transforms import PolyTokens
    from polyformer.updates.tokens import update_tokens

_PUBLIC = {
    "Bernstein": "polyformer.bases",
    "Chebyshev": "polyformer.bases",
    "FixedBasis": "polyformer.bases",
    "Graph": "polyformer.graph",
    "Jacobi": "polyformer.bases",
    "Legendre": "polyformer.bases",
    "Monomial": "polyformer.bases",
    "Optimal": "polyformer.bases",
    "PolyAttn": "polyformer.nn.polyattn",
    "PolyFormer": "polyformer.nn.polyformer",
    "PolyFormerClassifier": "polyformer.estimators",
    "PolyFormerRegressor": "polyformer.estimators",
    "PolyTokens": "polyformer.transforms",
    "Run": "polyformer.runs.run",
    "Split": "polyformer.splits",
    "Task": "polyformer.tasks",
    "basis_response": "polyformer.bases",
    "compute_tokens": "polyformer.tokens",
    "list_bases": "polyformer.bases",
    "load_dataset": "polyformer.datasets",
    "open_tokens": "polyformer.tokens",
    "train": "polyformer.runs.train",
    "update_tokens": "polyformer.updates.tokens",
}

__all__ = [
    "Bernstein",
    "Chebyshev",
    "FixedBasis",
    "Graph",
    "Jacobi",
    "Legendre",
    "Monomial",
    "Optimal",
    "PolyAttn",
    "PolyFormer",
    "PolyFormerClassifier",
    "PolyFormerRegressor",
    "PolyTokens",
    "Run",
    "Split",
    "Task",
    "__version__",
    "basis_response",
    "compute_tokens",
    "errors",
    "list_bases",
    "load_dataset",
    "open_tokens",
    "train",
    "update_tokens",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("polyformer.errors")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'polyformer' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
