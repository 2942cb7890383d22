"""What a data set is: facts, files, and a method that loads it as a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyformer.errors import UnknownName
from polyformer.registry import suggest
from polyformer.reporter import SILENT, Reporter
from polyformer.tasks import Task

__all__ = ["Counts", "Dataset"]


@dataclass(frozen=True)
class Counts:
    """Published sizes; ``edges`` counts every undirected edge once.

    ``listed`` is the number of edges in the published file, with every direction, loop and repeat, for data sets whose
    papers count those. If it is given, a loader verifies it.
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
    """Names of the split protocols, the paper's first; ``("none",)`` for a data set without labels."""
    options: tuple[str, ...] = ()
    """Names of the options that may follow the name, as in ``name:key=value``."""

    @abstractmethod
    def load(self, root: Path | None, protocol: str, *, reporter: Reporter = SILENT, **options: Any) -> Task:
        """Read the data set, from ``root`` or another place for data, with the splits of ``protocol``."""

    @abstractmethod
    def status(self, root: Path | None) -> str:
        """Where the data set is: ``built in``, its path on this machine, or how to get it."""

    def choose_protocol(self, protocol: str | None) -> str:
        """The given protocol, or the default one for None."""
        if protocol is None:
            return self.protocols[0]
        if protocol not in self.protocols:
            raise UnknownName(
                f"The data set '{self.name}' has no split protocol '{protocol}'. {suggest(protocol, self.protocols)}"
            )
        return protocol
