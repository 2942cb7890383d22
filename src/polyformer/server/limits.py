"""How much one request may ask of the server."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Bounds on requests and connections.

    Attributes:
        body_bytes: of a request.
        ids: ids in one request.
        new_nodes: nodes that are not in the graph, in one request.
        edges: edges in one request.
        seconds: from the end of a request to its answer.
        update_seconds: the same for a change of the graph, which goes on even if it takes longer.
        sending_seconds: from the beginning of a request to its end; an idle connection is closed after this time too.
        waiting: requests that wait for the model; more are told to come back.
        connections: open connections; beyond them the one that has been silent longest is closed.
    """

    body_bytes: int = 4 << 20
    ids: int = 10_000
    new_nodes: int = 1_000
    edges: int = 20_000
    seconds: float = 30.0
    update_seconds: float = 300.0
    sending_seconds: float = 10.0
    waiting: int = 1_000
    connections: int = 500

    def most(self, name: str) -> int:
        """How many entries a list of an update may have."""
        return self.edges if name.endswith("edges") else self.new_nodes
