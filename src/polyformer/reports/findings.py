"""All that a report tells of a run: this file computes it once, and the other files here show it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from polyformer.errors import DataNotFound
from polyformer.filters import Filters, spectral_coefficients
from polyformer.models import NodeWiseFilter, Workload
from polyformer.models.walk import node_blocks
from polyformer.reporter import SILENT, Reporter
from polyformer.reports.importance import Importance, feature_importance
from polyformer.reports.label_effect import LabelEffect, label_effect
from polyformer.reports.outcome import Outcome, Trained, filters_of
from polyformer.runs.run import Run
from polyformer.runs.versions import versions
from polyformer.tasks import Task

__all__ = ["Findings", "Learned", "gather", "learned_filters"]


@dataclass(frozen=True, eq=False)
class Findings:
    """A run and, where there is a model, what it does.

    Attributes:
        notes: what a reader must know, sentence by sentence.
        label_effect: what known labels change; None for a model that reads none.
    """

    run: Run
    notes: list[str]
    outcome: Outcome | None
    label_effect: LabelEffect | None = None


@dataclass(frozen=True, eq=False)
class Learned:
    """The filters of a model on its data: ``filters`` of ``nodes`` (n,), or ``unified`` (F, L), or neither."""

    task: Task
    nodes: np.ndarray
    filters: Filters | None
    unified: np.ndarray | None


def gather(
    path: Path,
    *,
    data_root: str | None = None,
    clusters: int | None = None,
    importance: bool = True,
    memory: int | None = None,
    reporter: Reporter = SILENT,
) -> Findings:
    """Read a run, apply its model to its data, and look at what was learned.

    Args:
        path: the run directory.
        clusters: how many kinds of filters; chosen by default.
        importance: whether to find out which feature columns matter, where the graph is small.
        memory: bytes that may be used, 80 % of what is free by default.
        reporter: hears how far reading and evaluating are.
    """
    run = Run.open(path)
    notes = _notes(run)
    try:
        card, model = run.load()
    except DataNotFound:
        notes.append("There is no trained model yet, so only the settings and the learning curve are shown.")
        return Findings(run, notes, None)
    trained = Trained(card, model, *run.task_and_split(data_root, reporter))
    workload = Workload(memory=memory, scratch=run.path, labels=run.shown_labels(trained.task))
    outcome = trained.evaluate(clusters, workload, notes, reporter)
    effect = label_effect(trained, outcome, workload)
    if importance:  # last, as it binds the model to other features
        outcome = replace(outcome, importance=_importance(trained, workload))
    return Findings(run, notes, outcome, effect)


def _notes(run: Run) -> list[str]:
    """What a reader must know of the run directory."""
    notes = []
    if run.result is None:
        notes.append(
            f"The run is not finished: there is no test score yet. Continue it with polyformer train --resume --out "
            f"{shlex.quote(str(run.path))}"
        )
    run_version, own_version = run.versions.get("polyformer"), versions()["polyformer"]
    if run_version != own_version:
        notes.append(
            f"The run was made by polyformer {run_version}, this report by {own_version}: numbers may differ in "
            f"rounding."
        )
    return notes


def _importance(trained: Trained, workload: Workload) -> Importance | None:
    if trained.small:
        return feature_importance(trained.model, trained.card, trained.task, trained.split, workload)
    return Importance.left_out("The graph is large, so it was not computed which columns matter.")


def learned_filters(
    path: Path, clusters: int | None = None, data_root: str | None = None, by_shape: bool = False
) -> Learned:
    """The filters of a run's model alone: of all nodes, or of those that it was to fit.

    Args:
        path: the run directory.
        clusters: how many kinds of filters; chosen by default.
        by_shape: tell kinds by the shape of responses alone; see :func:`polyformer.filters.describe_filters`.
    """
    run = Run.open(path)
    model = run.model()
    task, split = run.task_and_split(data_root)
    nodes = split.train if split.fit else task.graph.present_nodes

    def compute(ids: np.ndarray) -> tuple[np.ndarray, ...]:
        return (spectral_coefficients(model, ids) if isinstance(model, NodeWiseFilter) else ids,)

    blocks = node_blocks(model, task.graph, compute, Workload(nodes, labels=run.shown_labels(task)))
    alpha = np.concatenate([part for _, (part,) in blocks])
    return Learned(task, nodes, *filters_of(model, alpha, clusters, by_shape))
