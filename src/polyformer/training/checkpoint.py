"""One file that holds all a run needs to go on, replaced whole and checked by its hash."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from polyformer.errors import FileCorrupt
from polyformer.files import array_digest, reporting_io_errors, write_whole

__all__ = ["Checkpoint", "read_tensors", "write_tensors"]


def write_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write a safetensors file whose header carries ``about`` and the hash of the tensors."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"about": json.dumps(about), "digest": _digest(tensors)}
    with reporting_io_errors(path.name, path), write_whole(path) as file:
        file.write(save(tensors, metadata=header))


def read_tensors(path: Path, what: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and ``about`` that :func:`write_tensors` wrote; a damaged file gives a sentence about ``what``."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        about = json.loads(header["about"])
        intact = _digest(tensors) == header["digest"]
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise FileCorrupt(f"The {what} '{path}' cannot be read ({error}). Remove it and train again.") from None
    if not intact:
        raise FileCorrupt(
            f"The {what} '{path}' has been changed or damaged: its hash differs. Remove it and train again."
        )
    return tensors, about


def _digest(tensors: dict[str, Tensor]) -> str:
    return array_digest(*(np.asarray(tensors[name].reshape(-1).view(torch.uint8)) for name in sorted(tensors)))


@dataclass
class Checkpoint:
    """The state of training at the end of an epoch.

    Randomness needs no place in it: every epoch draws from generators seeded by (seed, epoch).

    Attributes:
        resumed_after: the epochs after which training was taken up again so far.
        cpu_seconds: time of the processor, all threads of the first process.
    """

    epoch: int
    seconds: float
    best_epoch: int
    best_score: float
    parameters: dict[str, Tensor]
    best_parameters: dict[str, Tensor]
    optimizer: dict[int, dict[str, Tensor]]
    resumed_after: list[int] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Replace ``path``."""
        tensors = {f"parameters/{name}": tensor for name, tensor in self.parameters.items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best_parameters.items()}
        tensors |= {
            f"optimizer/{i}/{key}": value for i, state in self.optimizer.items() for key, value in state.items()
        }
        names = ("epoch", "seconds", "cpu_seconds", "best_epoch", "best_score", "resumed_after")
        about = {name: getattr(self, name) for name in names}
        write_tensors(path, tensors, about)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read what :meth:`save` wrote."""
        tensors, about = read_tensors(path, "checkpoint")
        parts: dict[str, dict[str, Tensor]] = {"parameters": {}, "best": {}, "optimizer": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = tensor
        optimizer: dict[int, dict[str, Tensor]] = {}
        for name, tensor in parts["optimizer"].items():
            index, _, key = name.partition("/")
            optimizer.setdefault(int(index), {})[key] = tensor
        return cls(**about, parameters=parts["parameters"], best_parameters=parts["best"], optimizer=optimizer)
