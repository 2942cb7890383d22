"""All that a report tells of a run, as arrays: computed once, shown by the other files here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.errors import DataNotFound, PolyformerError
from polyformer.filters import (
    FilterClusters,
    cluster_filters,
    default_channel,
    filter_coefficients,
    frequency_grid,
    order_contributions,
    pass_shares,
)
from polyformer.models import NodeModel, NodeWiseFilter, SpectralFilter
from polyformer.models.polyformer import PolyFormerModel
from polyformer.operators import Operator
from polyformer.prediction import Resources, node_blocks, node_scores
from polyformer.progress import Share, Stages
from polyformer.reports.importance import Importance, feature_importance
from polyformer.reports.node_map import grid_width, plane, sample_nodes
from polyformer.reports.spectrum import signal_spectrum, sketch_columns
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.training.run import RunRequest, load_task, versions
from polyformer.training.run_directory import RunDirectory
from polyformer.training.saved_model import ModelCard, load_model

__all__ = [
    "NEIGHBOURS",
    "Filters",
    "Findings",
    "Learned",
    "Outcome",
    "RunRecord",
    "describe_filters",
    "gather",
    "is_small",
    "learned_filters",
    "read_record",
]

WHOLE_NODES, WHOLE_EDGES = 200_000, 5_000_000
"""Up to here every node is evaluated and spectra are computed; of larger graphs a sample."""

_SAMPLED = 20_000
_MAP_NODES, _MAP_BYTES = 12_000, 2_230_000

NEIGHBOURS = 16
"""So many of a node's neighbours are named."""


@dataclass(frozen=True)
class RunRecord:
    """What a run directory says without its data and model.

    Attributes:
        command: how to repeat it.
        notes: what a reader must know, sentence by sentence.
    """

    path: Path
    config: dict[str, Any]
    result: dict[str, Any] | None
    metrics: list[dict[str, Any]]
    command: str
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Filters:
    """Filters of the nodes on the map.

    Shapes:
        ``lam`` (L,); ``tokens`` (K+1, L): g_k(λ); ``coefficients`` (n, H, K+1); ``bands`` (n, 3);
        ``contributions`` (n, K+1); ``cluster`` (n,).

    Attributes:
        exact: whether the response is all that the model does to the spectrum before its read-out.
        channel: the feature column of an optimal basis.
    """

    lam: np.ndarray
    tokens: np.ndarray
    coefficients: np.ndarray
    bands: np.ndarray
    contributions: np.ndarray
    clusters: FilterClusters
    cluster: np.ndarray
    layers: int
    exact: bool
    channel: int | None

    @property
    def responses(self) -> np.ndarray:
        """(n, H, L)."""
        return np.einsum("nhk,kl->nhl", self.coefficients, self.tokens)


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


@dataclass(frozen=True, eq=False)
class Learned:
    """The filters of a model on its data: ``filters`` of ``nodes`` (n,), or ``unified`` (F, L), or neither."""

    task: Task
    nodes: np.ndarray
    filters: Filters | None
    unified: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Findings:
    """A run and, where there is a model, what it does."""

    record: RunRecord
    outcome: Outcome | None


def is_small(nodes: int, edges: int) -> bool:
    """Whether a report takes seconds, so that it can follow training unasked."""
    return nodes <= WHOLE_NODES and edges <= WHOLE_EDGES


def read_record(run: Path) -> RunRecord:
    """Open a run directory, finished or not."""
    directory = RunDirectory.open(run)
    config, result, notes = directory.config, directory.result, []
    if result is None:
        notes.append(
            f"The run is not finished: there is no test score yet. Continue it with polyformer train --resume --out "
            f"{shlex.quote(str(run))}"
        )
    made, here = config.get("versions", {}).get("polyformer"), versions()["polyformer"]
    if made != here:
        notes.append(f"The run was made by polyformer {made}, this report by {here}: numbers may differ in rounding.")
    return RunRecord(run, config, result, directory.read_metrics(), _command(config), notes)


def _command(config: dict[str, Any]) -> str:
    """The command that repeats a run: settings that differ from the defaults, by name."""
    parts = ["polyformer", "train", str(config["data"]), "--model", config["model"]]
    for name in ("protocol", "preset"):
        if config[name] is not None:
            parts += [f"--{name}", str(config[name])]
    parts += ["--split", str(config["split"]), "--seed", str(config["seed"])]
    try:
        defaults = RunRequest(config["data"], config["model"], preset=config["preset"]).resolve_settings()
    except PolyformerError:  # a preset file that is gone since: all that differs from the defaults is named
        defaults = RunRequest(config["data"], config["model"]).resolve_settings()
    for name, value in config["settings"].items():
        if value != defaults.get(name) and not isinstance(value, dict):
            parts += ["--set", f"{name}={value}"]
    return shlex.join(parts)


def gather(
    run: Path,
    *,
    data_root: str | None = None,
    clusters: int | None = None,
    importance: bool = True,
    memory: int | None = None,
    loading: Stages | None = None,
    report: Callable[[str], None] | None = None,
    progress: Share | None = None,
    evaluated: Share | None = None,
) -> Findings:
    """Read a run, apply its model to its data, and look at what was learned.

    Args:
        clusters: how many kinds of filters; chosen by default.
        importance: whether to find out which feature columns matter, where the graph is small.
        memory: bytes that may be used, 80 % of what is free by default.
        evaluated: is told the share of the nodes that is done.
    """
    record = read_record(run)
    try:
        card, model = load_model(run)
    except DataNotFound:
        record.notes.append("There is no trained model yet, so only the settings and the learning curve are shown.")
        return Findings(record, None)
    task, split = load_task(_request(record, data_root), loading, card=card)
    resources = Resources(memory, None, run, report, progress, evaluated)
    outcome = _evaluate(record, card, model, task, split, clusters, resources)
    if importance:  # last, as it binds the model to other features
        silent = replace(resources, report=None, progress=None, walked=None)
        outcome = replace(outcome, importance=_importance(model, outcome, silent))
    return Findings(record, outcome)


def _request(record: RunRecord, data_root: str | None) -> RunRequest:
    """What the run was asked for; its data may lie elsewhere now."""
    request = replace(RunRequest.of_run(record.config), tokens=None)  # the token directory may be gone since
    return request if data_root is None else replace(request, data_root=data_root)


def learned_filters(
    run: Path, clusters: int | None = None, data_root: str | None = None, by_shape: bool = False
) -> Learned:
    """The filters of a run's model alone: of all nodes, or of those that it was to fit.

    Args:
        clusters: how many kinds of filters; chosen by default.
        by_shape: tell kinds by the shape of responses alone; see :func:`describe_filters`.
    """
    record = read_record(run)
    card, model = load_model(run)
    task, split = load_task(_request(record, data_root), card=card)
    nodes = split.train if split.fit else np.arange(task.graph.num_nodes)

    def compute(ids: np.ndarray) -> tuple[np.ndarray, ...]:
        return (filter_coefficients(model, ids) if isinstance(model, NodeWiseFilter) else ids,)

    alpha = np.concatenate([part for _, (part,) in node_blocks(model, task.graph, compute, nodes)])
    return Learned(task, nodes, *_filters(model, alpha, clusters, by_shape))


def _filters(
    model: NodeModel, alpha: np.ndarray, clusters: int | None, by_shape: bool = False
) -> tuple[Filters | None, np.ndarray | None]:
    """Those of a node-wise model with coefficients α (n, H, K+1), or (F, L) that all nodes share, or neither."""
    if isinstance(model, NodeWiseFilter):
        return describe_filters(model, alpha, clusters, by_shape), None
    return None, model.frequency_response(frequency_grid()) if isinstance(model, SpectralFilter) else None


def _evaluate(
    record: RunRecord,
    card: ModelCard,
    model: NodeModel,
    task: Task,
    split: Split,
    clusters: int | None,
    resources: Resources,
) -> Outcome:
    graph, small = task.graph, is_small(task.graph.num_nodes, task.graph.num_edges)
    shown = sample_nodes(graph.num_nodes, _map_size(card, model, task))
    nodes = np.arange(graph.num_nodes if small else 0)
    if not small:
        tested = split.test[sample_nodes(len(split.test), _SAMPLED)]
        nodes = np.union1d(shown, tested)
        record.notes.append(f"The graph is large: {len(nodes):,} nodes drawn at random were evaluated.")
    if len(shown) < graph.num_nodes:
        record.notes.append(
            f"The map and the kinds of filters show {len(shown):,} of {graph.num_nodes:,} nodes, drawn at random."
        )

    def compute(ids: np.ndarray) -> tuple[np.ndarray, ...]:
        scores = node_scores(model, card.reader, ids)
        return (scores, filter_coefficients(model, ids)) if isinstance(model, NodeWiseFilter) else (scores,)

    blocks = [parts for _, parts in node_blocks(model, graph, compute, None if small else nodes, resources)]
    scores, *alpha = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    filters, unified = _filters(model, alpha[0][np.searchsorted(nodes, shown)] if alpha else shown, clusters)
    width = grid_width(graph)
    spectra: dict[str, np.ndarray] = {}
    if small and graph.features is not None and graph.num_edges:
        operator, lam = Operator(graph), frequency_grid(129)
        signals = {"input: node features": sketch_columns(graph.features), "output: predictions": scores}
        spectra = {name: signal_spectrum(operator, signal, lam) for name, signal in signals.items()}
    if width is not None:
        places = np.stack([(shown % width + 0.5) / width, (shown // width + 0.5) * width / graph.num_nodes], axis=1)
    else:
        rows = scores[np.searchsorted(nodes, shown)] if filters is None else filters.responses
        places = plane(rows)
    return Outcome(card, task, split, nodes, scores, shown, places, width, filters, unified, spectra, None)


def _importance(model: NodeModel, outcome: Outcome, resources: Resources) -> Importance | None:
    if is_small(outcome.task.graph.num_nodes, outcome.task.graph.num_edges):
        return feature_importance(model, outcome.card, outcome.task, outcome.split, resources)
    return Importance.left_out("The graph is large, so it was not computed which columns matter.")


def _map_size(card: ModelCard, model: NodeModel, task: Task) -> int:
    """As many nodes as fit in the document with their coefficients, neighbours and names."""
    graph = task.graph
    degree = min(2 * graph.num_edges / max(graph.num_nodes, 1), NEIGHBOURS)
    per_node = 31 + degree * (2 if graph.num_nodes < 1 << 16 else 4)
    if isinstance(model, NodeWiseFilter):
        per_node += 2 * card.settings.get("heads", 1) * (card.settings["order"] + 1)
    if task.ids is not None:  # names stand there as they are, not in base64
        some = [str(name) for name in task.ids[:1000]]
        name = 0.75 * len(json.dumps(some)) / max(len(some), 1)
        per_node += name
        if graph.num_nodes > min(_MAP_NODES, _MAP_BYTES / per_node):  # neighbours that are not on the map are named too
            per_node += degree * (name + 6)
    return min(_MAP_NODES, max(500, int(_MAP_BYTES / per_node)))


def describe_filters(
    model: NodeWiseFilter, alpha: np.ndarray, number: int | None = None, by_shape: bool = False
) -> Filters:
    """What the coefficients of some nodes, (n, H, K+1), amount to.

    Args:
        number: number of clusters; selected by silhouette by default.
        by_shape: cluster responses of unit norm, for models in which a read-out sets the scale.
    """
    lam, channel = frequency_grid(), default_channel(model)
    tokens = model.token_response(lam, channel)
    responses = np.einsum("nhk,kl->nhl", alpha, tokens)
    compared = responses
    if by_shape:
        norm = np.sqrt(np.square(responses).sum(axis=(1, 2), keepdims=True))
        compared = np.divide(responses, norm, out=np.zeros_like(responses), where=norm > 0)
    clusters = cluster_filters(compared, number)
    return Filters(
        lam,
        tokens,
        alpha,
        pass_shares(responses, lam),
        order_contributions(alpha, tokens),
        clusters,
        clusters.assign(compared),
        model.filter_layers,
        not isinstance(model, PolyFormerModel),
        channel,
    )
