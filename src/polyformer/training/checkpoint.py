"""One file that holds all a run needs to go on, replaced whole and checked by its hash."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from polyformer.files import RUN, check_identity, read_tensors, reading, run_identity, write_tensors
from polyformer.files.run_names import CONFIG
from polyformer.files.run_schemas import CHECKPOINT

__all__ = ["Checkpoint"]


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
        if (path.parent.parent / CONFIG).exists():
            about[RUN] = run_identity(path.parent.parent)
        write_tensors(path, tensors, about)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read what :meth:`save` wrote."""
        tensors, about = read_tensors(path, CHECKPOINT)
        if (path.parent.parent / CONFIG).exists():
            check_identity(path, about, path.parent.parent)
        about.pop(RUN, None)
        parts: dict[str, dict[str, Tensor]] = {"parameters": {}, "best": {}, "optimizer": {}}
        optimizer: dict[int, dict[str, Tensor]] = {}
        with reading(path, "Remove it and train again."):  # a name that none of ours has is a KeyError or a ValueError
            for name, tensor in tensors.items():
                part, _, rest = name.partition("/")
                parts[part][rest] = tensor
            for name, tensor in parts["optimizer"].items():
                index, _, key = name.partition("/")
                optimizer.setdefault(int(index), {})[key] = tensor
        return cls(**about, parameters=parts["parameters"], best_parameters=parts["best"], optimizer=optimizer)
