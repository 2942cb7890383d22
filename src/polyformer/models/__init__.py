"""Models by name, all under the training contract. To add one: write its file and add its line to ``MODELS``."""

from __future__ import annotations

from polyformer.models.contract import NodeModel, Workload
from polyformer.registry import Registry

__all__ = ["MODELS", "NodeModel", "Workload"]

MODELS: Registry[type[NodeModel]] = Registry(
    "model",
    {
        "polyformer": "polyformer.models.polyformer:PolyFormerModel",
    },
)
