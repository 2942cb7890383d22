"""What the trained model of a run does on its data, as arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np

from polyformer.filters import Filters, describe_filters, frequency_grid, spectral_coefficients, spectral_layers
from polyformer.models import NodeModel, NodeWiseFilter, SpectralFilter, Workload
from polyformer.models.walk import node_blocks
from polyformer.operators import Operator
from polyformer.reporter import SILENT, Reporter
from polyformer.reports.importance import Importance
from polyformer.reports.node_map import grid_width, plane, sample_nodes
from polyformer.reports.spectrum import signal_spectrum, sketch_columns
from polyformer.runs.prediction import node_scores
from polyformer.runs.saved_model import ModelCard
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["NEIGHBOURS", "Outcome", "Trained", "filters_of", "is_small", "map_size"]

WHOLE_NODES, WHOLE_EDGES = 200_000, 5_000_000
"""Up to here every node is evaluated and spectra are computed; of larger graphs a sample."""

_SAMPLED = 20_000
_MAP_NODES, _MAP_BYTES = 12_000, 2_230_000

NEIGHBOURS = 16
"""So many of a node's neighbours are named."""


def is_small(nodes: int, edges: int) -> bool:
    """Whether a report takes seconds, so that it can follow training unasked."""
    return nodes <= WHOLE_NODES and edges <= WHOLE_EDGES


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the trained model does on the data.

    Attributes:
        nodes: (m,) ids that were evaluated; ``scores`` (m, C) belong to them.
        shown: (n,) ids on the map; ``places`` (n, 2) in [0, 1].
        grid: width of the grid that the map is, if it is one.
        filters: the filters of a node-wise model.
        unified: (F, L) responses of a model with the same filters for all nodes.
        spectra: density over λ of the input and of the output.
        importance: which feature columns matter; None where that was not asked for or cannot be told.
    """

    card: ModelCard
    task: Task
    split: Split
    nodes: np.ndarray
    scores: np.ndarray
    shown: np.ndarray
    places: np.ndarray
    grid: int | None
    filters: Filters | None
    unified: np.ndarray | None
    spectra: dict[str, np.ndarray]
    importance: Importance | None

    @property
    def degrees(self) -> np.ndarray:
        """Number of neighbours of the nodes on the map: (n,)."""
        indptr = self.task.graph.indptr
        return np.asarray(indptr[self.shown + 1] - indptr[self.shown])

    def scores_of(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nodes among ``nodes`` that were evaluated, and their scores."""
        position = np.searchsorted(self.nodes, nodes)
        known = self.nodes[np.minimum(position, len(self.nodes) - 1)] == nodes
        return nodes[known], self.scores[position[known]]


def filters_of(
    model: NodeModel, alpha: np.ndarray, clusters: int | None, by_shape: bool = False
) -> tuple[Filters | None, np.ndarray | None]:
    """The filters of a node-wise model with coefficients α (n, S, H, K+1), or (F, L) that all share, or neither."""
    if isinstance(model, NodeWiseFilter):
        filters = describe_filters(model, alpha[:, 0], clusters, by_shape)
        return filters if alpha.shape[1] == 1 else replace(filters, later=alpha[:, 1:]), None
    return None, model.frequency_response(frequency_grid()) if isinstance(model, SpectralFilter) else None


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model beside its data."""

    card: ModelCard
    model: NodeModel
    task: Task
    split: Split

    @property
    def small(self) -> bool:
        """Whether every node is evaluated."""
        return is_small(self.task.graph.num_nodes, self.task.graph.num_edges)

    def evaluate(
        self, clusters: int | None, workload: Workload, notes: list[str], reporter: Reporter = SILENT
    ) -> Outcome:
        """Apply the model to all nodes, or to a sample, and look at what it learned.

        Args:
            clusters: number of kinds of filters; by default the number with the best silhouette.
            workload: what the model may use.
            notes: gets a sentence on everything that is shown in part only.
        """
        graph = self.task.graph
        present = graph.present_nodes
        shown = present[sample_nodes(len(present), map_size(self.card, self.model, self.task))]
        nodes = self._sample(shown, notes)
        scores, alpha = self._scores(None if len(nodes) == graph.num_nodes else nodes, workload, reporter)
        on_map = np.searchsorted(nodes, shown)
        filters, unified = filters_of(self.model, shown if alpha is None else alpha[on_map], clusters)
        width = grid_width(graph)
        if width is not None:
            places = np.stack([(shown % width + 0.5) / width, (shown // width + 0.5) * width / graph.num_nodes], axis=1)
        else:
            places = plane(scores[on_map] if filters is None else filters.responses)
        spectra = self._spectra(nodes, scores)
        facts = self.card, self.task, self.split
        return Outcome(*facts, nodes, scores, shown, places, width, filters, unified, spectra, None)

    def _sample(self, shown: np.ndarray, notes: list[str]) -> np.ndarray:
        """(m,) the nodes that are evaluated: all of a small graph but those that were removed."""
        nodes = self.task.graph.present_nodes
        count = len(nodes)
        if not self.small:
            test = self.split.test
            nodes = np.union1d(shown, test[sample_nodes(len(test), _SAMPLED)])
            notes.append(f"The graph is large: {len(nodes):,} nodes drawn at random were evaluated.")
        if len(shown) < count:
            notes.append(f"The map and the kinds of filters show {len(shown):,} of {count:,} nodes, drawn at random.")
        return nodes

    def _scores(
        self, nodes: np.ndarray | None, workload: Workload, reporter: Reporter
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores (m, C) of the nodes, and coefficients (m, S, H, K+1) of a node-wise model."""
        model, reader = self.model, self.card.reader

        def compute(ids: np.ndarray) -> tuple[np.ndarray, ...]:
            scores = node_scores(model, reader, ids)
            return (scores, spectral_coefficients(model, ids)) if isinstance(model, NodeWiseFilter) else (scores,)

        walk = node_blocks(model, self.task.graph, compute, replace(workload, nodes=nodes), reporter, "evaluating")
        scores, *alpha = (np.concatenate(parts) for parts in zip(*(parts for _, parts in walk), strict=True))
        return scores, alpha[0] if alpha else None

    def _spectra(self, nodes: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
        """Density over λ of the input and of the output, of a small graph."""
        graph = self.task.graph
        if not self.small or graph.features is None or not graph.num_edges:
            return {}
        operator, lam = Operator(graph), frequency_grid(129)
        output = np.zeros((graph.num_nodes, scores.shape[1]), scores.dtype)  # removed nodes have no part in the signal
        output[nodes] = scores
        signals = {"input: node features": sketch_columns(graph.features), "output: predictions": output}
        return {name: signal_spectrum(operator, signal, lam) for name, signal in signals.items()}


def map_size(card: ModelCard, model: NodeModel, task: Task) -> int:
    """As many nodes as fit in the document with their coefficients, neighbours and names."""
    graph = task.graph
    degree = min(2 * graph.num_edges / max(graph.num_nodes, 1), NEIGHBOURS)
    per_node = 31 + degree * (2 if graph.num_nodes < 1 << 16 else 4)
    if isinstance(model, NodeWiseFilter):
        per_node += 2 * len(spectral_layers(model)) * card.settings.get("heads", 1) * (card.settings["order"] + 1)
    if task.ids is not None:  # names stand there as they are, not in base64
        some = [str(name) for name in task.ids[:1000]]
        name = 0.75 * len(json.dumps(some)) / max(len(some), 1)
        per_node += name
        if graph.num_nodes > min(_MAP_NODES, _MAP_BYTES / per_node):  # neighbours that are not on the map are named too
            per_node += degree * (name + 6)
    return min(_MAP_NODES, max(500, int(_MAP_BYTES / per_node)))
