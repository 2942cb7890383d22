"""Models by name, all under the training contract. To add one: write its file and add its line to ``MODELS``.

The names of the contract are loaded when they are first used: the table alone needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from polyformer.registry import Registry

if TYPE_CHECKING:
    from polyformer.models.contract import NodeModel, NodeWiseFilter, SpectralFilter, Workload

__all__ = ["MODELS", "NodeModel", "NodeWiseFilter", "SpectralFilter", "Workload"]

MODELS: Registry[type[NodeModel]] = Registry(
    "model",
    {
        "polyformer": "polyformer.models.polyformer:PolyFormerModel",
        "polyattn": "polyformer.baselines.polyattn:PolyAttnModel",
        "selfattn": "polyformer.baselines.selfattn:SelfAttnModel",
        "unifilter": "polyformer.baselines.unifilter:UniFilterModel",
        "mlp": "polyformer.baselines.mlp:MLPModel",
        "gcn": "polyformer.baselines.gcn:GCNModel",
        "gat": "polyformer.baselines.gat:GATModel",
        "chebnet": "polyformer.baselines.chebnet:ChebNetModel",
        "gcn-tuned": "polyformer.baselines.tuned:TunedGCNModel",
        "sage-tuned": "polyformer.baselines.tuned:TunedSAGEModel",
        "gat-tuned": "polyformer.baselines.tuned:TunedGATModel",
        "gprgnn": "polyformer.baselines.gprgnn:GPRGNNModel",
        "bernnet": "polyformer.baselines.bernnet:BernNetModel",
        "chebnetii": "polyformer.baselines.chebnetii:ChebNetIIModel",
        "optbasisgnn": "polyformer.baselines.optbasisgnn:OptBasisGNNModel",
        "dsf-gpr-r": "polyformer.baselines.dsf:DSFGPRModel",
        "dsf-bern-r": "polyformer.baselines.dsf:DSFBernModel",
        "transformer": "polyformer.baselines.transformer:TransformerModel",
        "specformer": "polyformer.baselines.specformer:SpecformerModel",
        "nagphormer": "polyformer.baselines.nagphormer:NAGphormerModel",
        "goat": "polyformer.baselines.goat:GOATModel",
        "nodeformer": "polyformer.baselines.nodeformer:NodeFormerModel",
        "sgformer": "polyformer.baselines.sgformer:SGFormerModel",
    },
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'polyformer.models' has no attribute '{name}'")
    return getattr(importlib.import_module("polyformer.models.contract"), name)
