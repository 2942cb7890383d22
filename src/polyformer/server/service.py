"""A run that answers: an open model, the version of the graph that it serves, and the user's ids. No HTTP."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.run import Run
from polyformer.server.batching import Batcher
from polyformer.server.changes import read_change, read_new_nodes
from polyformer.server.features import FeatureReader
from polyformer.server.names import NodeId, NodeNames
from polyformer.server.state import State, open_state
from polyformer.stores.directory import StoredTokens
from polyformer.tasks import Task
from polyformer.updates.graph_directory import update_graph
from polyformer.updates.task_changes import TaskChange
from polyformer.updates.tokens import update_tokens

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
        writable: whether :meth:`update` may change the graph directory and the token directory.
        tolerance: of the tokens after a change; see :func:`polyformer.update_tokens`.
        reporter: hears how far opening is.
    """

    def __init__(
        self,
        run: str | Path,
        graph: str | None = None,
        tokens: str | Path | None = None,
        data_root: str | None = None,
        writable: bool = False,
        tolerance: float = 1e-3,
        reporter: Reporter = SILENT,
    ) -> None:
        self.run = Run.open_model(run)
        self.tokens = None if tokens is None else Path(tokens)
        self.writable, self.tolerance = writable, tolerance
        self._graph, self._data_root = graph, data_root
        self.card, self.model = self.run.load()
        if tokens is not None and not self.model.reads_tokens:
            raise InvalidParameter(f"The model '{self.card.model}' reads no tokens. Leave --tokens out.")
        self.folder = self._graph_directory() if writable else None
        self.state: State = self._open(None, reporter)
        spare = (max(1, torch.get_num_threads() - 1),)  # requests that read keep a core
        self._aside = ThreadPoolExecutor(1, "polyformer-aside", torch.set_num_threads, spare)
        self.batcher = Batcher()
        self._writer = ThreadPoolExecutor(1, "polyformer-writer", torch.set_num_threads, spare)

    def close(self) -> None:
        """End the threads once they have answered what waits."""
        self._writer.shutdown()
        self._aside.shutdown()
        self.batcher.close()

    def _graph_directory(self) -> Path:
        """The graph directory that is served, which updates change."""
        data = self._graph if self._graph is not None else self.run.data or ""
        folder = Path(data)
        if not (folder / "manifest.json").exists():
            raise InvalidParameter(
                f"'--writable' needs a graph directory, whose changes are kept. '{data}' is none. Make one with: "
                f"polyformer import."
            )
        return folder

    def _open(self, before: State | None, reporter: Reporter = SILENT) -> State:
        """The newest version of the graph, with tokens that follow it."""
        task = self.run.task(self._graph, self._data_root, reporter)
        if self.writable and self.tokens is not None:
            self._follow(self.tokens, task.graph)
        names = None if before is None else before.names.after(task)
        labels = self.run.shown_labels(task, self._graph)
        return open_state(self.card, self.model, task, self.tokens, names, labels, reporter)

    def _follow(self, tokens: Path, graph: Graph) -> None:
        """Bring the token directory to a graph that has changed; after a kill it may be some versions behind."""
        if "update" not in self.model.capabilities:
            raise InvalidParameter(
                f"The tokens in '{tokens}' cannot follow changes of the graph, because the basis or the model depends "
                f"on all nodes at once. Leave --tokens or --writable out."
            )
        if StoredTokens(tokens).manifest["graph"] != graph.fingerprint:
            update_tokens(tokens, graph, self.tolerance)

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

    async def predict_new(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Predictions of nodes that are not in the graph, which is not changed.

        Args:
            body: ``nodes`` with ids and features, ``edges`` of ids, and ``mode``: frozen by default.
        """
        state = self.state
        request = read_new_nodes(body, state.task, state.names)
        mode = body.get("mode", "frozen")

        def predict() -> np.ndarray:
            scores: np.ndarray = state.beside.predict(
                request.features, request.edges, mode, request.weights, self.tolerance
            )
            return scores

        quick = mode == "frozen" and self.tokens is not None
        future = self.batcher.run(predict) if quick else self._aside.submit(predict)
        return state.answer(request.ids, await asyncio.wrap_future(future))

    async def update(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change the graph directory; once this returns, the change is on the disk and is what is served.

        Args:
            body: any of ``remove_nodes``, ``remove_edges``, ``add_nodes``, ``change_nodes``, ``add_edges`` and
                ``change_edges``; and ``again``, to apply a change that was applied before.
        """
        return await asyncio.shield(asyncio.wrap_future(self._writer.submit(self._update, dict(body))))

    def _update(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._apply(body)
        gc.collect()  # parts of the old state hold each other, and with them maps of files that are gone
        return answer

    def _apply(self, body: dict[str, Any]) -> dict[str, Any]:
        assert self.folder is not None
        state, again = self.state, bool(body.pop("again", False))
        digest = hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=16).hexdigest()

        def read(task: Task) -> tuple[TaskChange, str]:
            names = state.names if task.graph.version == state.version else NodeNames.of(task)
            return read_change(body, task, names), digest

        entry = update_graph(self.folder, read, "request", again, digest)
        self.state = self._open(state)
        return {"version": entry["version"], "time": entry["time"], "counts": entry["counts"]}

    def neighbours(self, name: NodeId, limit: int = NEIGHBOURS, offset: int = 0) -> dict[str, Any]:
        """Neighbours of a node, from place ``offset`` on."""
        state = self.state
        return {"id": name, **state.neighbours(state.names.row(name), limit, offset), "version": state.version}

    @property
    def features(self) -> FeatureReader:
        """How features of new nodes are read."""
        return FeatureReader(self.state.task)

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
