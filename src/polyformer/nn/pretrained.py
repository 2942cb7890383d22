"""The weights of a trained PolyFormer, read from the directory of a run or of a saved classifier.

Names in these files are stable: the network's tensors stand in ``model.safetensors`` under ``network.``, and its
settings in ``config.json`` under ``card.settings``, by the names of :class:`polyformer.nn.polyformer.PolyFormer`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter
from polyformer.files import check_identity, read_json, read_tensors
from polyformer.files.run_names import CONFIG, WEIGHTS
from polyformer.files.run_schemas import MODEL_CONFIG
from polyformer.files.run_schemas import WEIGHTS as WEIGHTS_SCHEMA

__all__ = ["read_pretrained"]

_PREFIX = "network."
_SETTINGS = (
    "hidden_channels",
    "order",
    "num_layers",
    "heads",
    "ffn_channels",
    "mlp_ratio",
    "decay",
    "dropout",
    "attention_dropout",
    "activation",
    "scale",
)


def read_pretrained(directory: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Arguments of ``PolyFormer`` and its ``state_dict``, from the directory of a run or of a saved classifier."""
    folder = Path(directory)
    if not folder.is_dir():
        raise DataNotFound(f"There is no directory '{folder}'. Pass a run directory or a saved classifier.")
    card = read_json(folder / CONFIG, MODEL_CONFIG)["card"]
    if card["model"] != "polyformer":
        raise InvalidParameter(
            f"'{folder}' holds a model '{card['model']}', not a polyformer. Load it with Run.open_model(…).model()."
        )
    missing = [name for name in _SETTINGS if name not in card["settings"]]
    if missing:
        raise FileCorrupt(f"'{folder / CONFIG}' lacks the setting '{missing[0]}' of its model. Train it again.")
    if not (folder / WEIGHTS).exists():
        raise DataNotFound(
            f"'{folder}' holds no trained model yet. Finish it with: polyformer train --resume --out {folder}"
        )
    tensors, about = read_tensors(folder / WEIGHTS, WEIGHTS_SCHEMA)
    check_identity(folder / WEIGHTS, about)
    weights = {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items() if name.startswith(_PREFIX)}
    last = weights.get("readout.4.weight")
    if last is None:
        raise FileCorrupt(f"'{folder / WEIGHTS}' holds no network of a polyformer. Train it again.")
    settings = {name: card["settings"][name] for name in _SETTINGS}
    return {
        "in_channels": card["in_channels"] + card.get("label_channels", 0),
        "out_channels": len(last),
        **settings,
    }, weights
