"""Models by name, all under one training contract: node ids in, outputs out.

To add a model: write its file and add its line to ``MODELS``.

The names of the contract are loaded when they are first used: the table alone needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from polyformer.registry import Registry

if TYPE_CHECKING:
    from polyformer.models.contract import NodeModel, Workload
    from polyformer.models.filter_contract import NodeWiseFilter, SpectralFilter

__all__ = ["MODELS", "NodeModel", "NodeWiseFilter", "SpectralFilter", "Workload"]

MODELS: Registry[type[NodeModel]] = Registry(
    "model",
    {
        "polyformer": "polyformer.models.polyformer:PolyFormerModel",
        "cascade": "polyformer.models.cascade:CascadeModel",
        "polyattn": "polyformer.models.polyattn:PolyAttnModel",
        "selfattn": "polyformer.models.selfattn:SelfAttnModel",
        "unifilter": "polyformer.models.unifilter:UniFilterModel",
        "mlp": "polyformer.models.mlp:MLPModel",
        "gcn": "polyformer.models.gcn:GCNModel",
        "gat": "polyformer.models.gat:GATModel",
        "chebnet": "polyformer.models.chebnet:ChebNetModel",
        "gcn-tuned": "polyformer.models.deep_convolutions:DeepGCNModel",
        "sage-tuned": "polyformer.models.deep_convolutions:DeepSAGEModel",
        "gat-tuned": "polyformer.models.deep_convolutions:DeepGATModel",
        "gprgnn": "polyformer.models.gprgnn:GPRGNNModel",
        "bernnet": "polyformer.models.bernnet:BernNetModel",
        "chebnetii": "polyformer.models.chebnetii:ChebNetIIModel",
        "optbasisgnn": "polyformer.models.optbasisgnn:OptBasisGNNModel",
        "dsf-gpr-r": "polyformer.models.dsf:DSFGPRModel",
        "dsf-bern-r": "polyformer.models.dsf:DSFBernModel",
        "transformer": "polyformer.models.transformer:TransformerModel",
        "specformer": "polyformer.models.specformer:SpecformerModel",
        "nagphormer": "polyformer.models.nagphormer:NAGphormerModel",
        "goat": "polyformer.models.goat:GOATModel",
        "nodeformer": "polyformer.models.nodeformer:NodeFormerModel",
        "sgformer": "polyformer.models.sgformer:SGFormerModel",
        "polynormer": "polyformer.models.polynormer:PolynormerModel",
    },
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'polyformer.models' has no attribute '{name}'")
    module = "filter_contract" if name.endswith("Filter") else "contract"
    return getattr(importlib.import_module(f"polyformer.models.{module}"), name)
