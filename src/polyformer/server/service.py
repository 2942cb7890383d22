"""A run that answers: an open model, the version of the graph that it serves, and the user's ids. No HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.reporter import SILENT, Reporter
from polyformer.runs.run import Run
from polyformer.server.batching import Batcher
from polyformer.server.names import NodeId
from polyformer.server.state import State, open_state

__all__ = ["Service"]

NEIGHBOURS = 50
"""Neighbours that a node's answer lists at most."""


class Service:
    """A trained run and the graph that it serves.

    Every method that answers reads :attr:`state` once, so an answer is of one version of the graph.

    Args:
        run: a run directory or a saved classifier.
        graph: another graph than the run's own, as ``polyformer predict`` reads it.
        tokens: a token directory of all nodes; without one, a pass over all nodes is kept for each version.
        data_root: where data files are looked for first.
        reporter: hears how far opening is.
    """

    def __init__(
        self,
        run: str | Path,
        graph: str | None = None,
        tokens: str | Path | None = None,
        data_root: str | None = None,
        reporter: Reporter = SILENT,
    ) -> None:
        self.run = Run.open_model(run)
        self.tokens = None if tokens is None else Path(tokens)
        self.card, self.model = self.run.load()
        task = self.run.task(graph, data_root, reporter)
        self.state: State = open_state(self.card, self.model, task, self.tokens, reporter=reporter)
        self.batcher = Batcher()

    def close(self) -> None:
        """End the thread of the model."""
        self.batcher.close()

    async def node(self, name: NodeId) -> dict[str, Any]:
        """All about one node: prediction, probabilities, filter, label and neighbours."""
        state = self.state
        row = state.names.row(name)
        answer = await asyncio.wrap_future(self.batcher.ask(state, np.array([row]), filters=True))
        [prediction] = state.predictions([name], answer.scores)
        return {
            **prediction,
            "classes": state.classes,
            "label": state.label_of(row),
            "filter": state.filter_of(None if answer.coefficients is None else answer.coefficients[0]),
            "neighbours": state.neighbours(row, NEIGHBOURS),
            "version": state.version,
        }

    async def predict(self, names: Sequence[Any]) -> dict[str, Any]:
        """Predictions of nodes of the graph, in the order of the ids."""
        state = self.state
        answer = await asyncio.wrap_future(self.batcher.ask(state, state.names.rows(names)))
        return state.answer(names, answer.scores)

    def neighbours(self, name: NodeId, limit: int = NEIGHBOURS, offset: int = 0) -> dict[str, Any]:
        """Neighbours of a node, from place ``offset`` on."""
        state = self.state
        return {"id": name, **state.neighbours(state.names.row(name), limit, offset), "version": state.version}

    def about(self) -> dict[str, Any]:
        """What is served, in numbers."""
        state = self.state
        graph = state.task.graph
        return {
            "model": self.card.model,
            "nodes": graph.num_nodes - len(graph.removed),
            "edges": graph.num_edges,
            "features": graph.num_features,
            "version": state.version,
        }
