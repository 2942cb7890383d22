"""What a data set is: facts, files, and a way to become a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyformer.errors import UnknownName
from polyformer.progress import Stages
from polyformer.registry import suggest
from polyformer.tasks import Task

__all__ = ["Counts", "Dataset"]


@dataclass(frozen=True)
class Counts:
    """Published sizes; ``edges`` counts every undirected edge once.

    ``listed`` is the number of edges in the published file, for sets whose papers count those (each direction, loop
    and repeat as it stands): where it is given, it is what a loader verifies.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    listed: int | None = None


class Dataset(ABC):
    """A data set by name. Subclasses are families; an instance is one member of a family."""

    name: str
    citation: str
    counts: Counts | None
    metric: str
    """Metric of the task; empty for a data set without labels."""
    protocols: tuple[str, ...]
    """Names of its split protocols, the paper's first; ``("none",)`` for a set without labels."""
    options: tuple[str, ...] = ()
    """What may follow its name, as in ``name:key=value``."""

    @abstractmethod
    def load(self, root: Path | None, protocol: str, *, progress: Stages | None = None, **options: Any) -> Task:
        """Read it (from ``root`` and the other places where data is looked for) with the splits of ``protocol``."""

    @abstractmethod
    def status(self, root: Path | None) -> str:
        """Where it is: ``built in``, the path on this machine, or how to get it."""

    def choose_protocol(self, protocol: str | None) -> str:
        """The protocol asked for, or the default one."""
        if protocol is None:
            return self.protocols[0]
        if protocol not in self.protocols:
            raise UnknownName(
                f"The data set '{self.name}' has no split protocol '{protocol}'. {suggest(protocol, self.protocols)}"
            )
        return protocol
