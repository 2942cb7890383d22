"""Features made ready for a model: put on a common scale, or made from the structure if a graph has none.

A run keeps columns and scaling in its ``ModelCard``, and other graphs are prepared with the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyformer.columns import Column
from polyformer.feature_scaling import FeatureScaling
from polyformer.graph import Graph
from polyformer.reporter import SILENT, Reporter
from polyformer.structure_features import STRUCTURE_COLUMNS, are_structural, structure_features
from polyformer.tasks import Task

__all__ = ["prepare_alike", "prepare_graph", "prepare_task", "prepare_task_alike"]


def prepare_task(task: Task, scale_features: str, reporter: Reporter = SILENT) -> Task:
    """The task with features that are ready for training.

    The reporter says a sentence on each change, and ``task.preprocessing`` keeps it.

    Args:
        scale_features: ``auto`` or ``none``; see :class:`polyformer.training.settings.TrainingSettings`.
    """
    graph, columns, sentences = prepare_graph(task.graph, task.columns, scale_features)
    for sentence in sentences:
        reporter.say(sentence)
    return replace(task, graph=graph, columns=columns, preprocessing=(*task.preprocessing, *sentences))


def prepare_graph(
    graph: Graph, columns: tuple[Column, ...] | None, scale_features: str
) -> tuple[Graph, tuple[Column, ...] | None, list[str]]:
    """The graph with features that are ready for training, their columns, and a sentence on each change.

    Published data sets stay as they are: their features are used as in the paper.
    """
    sentences: list[str] = []
    if graph.published:
        return graph, columns, sentences
    if graph.num_features == 0:
        graph, columns = graph.with_features(structure_features(graph)), STRUCTURE_COLUMNS
        names = ", ".join(column.name for column in STRUCTURE_COLUMNS)
        sentences.append(f"there are no features, so {len(STRUCTURE_COLUMNS)} were made from the structure: {names}")
    if scale_features == "auto":
        scaling = FeatureScaling.fit(graph.unscaled.features, columns, graph.removed)
        graph = graph.scaled(scaling)
        sentences += [scaling.describe(columns)] if scaling.parts else []
    return graph, columns, sentences


def prepare_alike(graph: Graph, columns: Sequence[Column] | None, scaling: FeatureScaling | None) -> Graph:
    """The graph with features made and scaled as a model's features were.

    Args:
        columns: columns of the model; structural ones say that the features are made from the structure.
        scaling: scaling of the model's features; None leaves features as they are.
    """
    if are_structural(columns) and graph.scaling is None:
        graph = graph.with_features(structure_features(graph))
    return graph.scaled(scaling)


def prepare_task_alike(task: Task, columns: tuple[Column, ...] | None, scaling: FeatureScaling | None) -> Task:
    """The task whose graph :func:`prepare_alike` has prepared."""
    graph = prepare_alike(task.graph, columns, scaling)
    return replace(task, graph=graph, columns=columns if are_structural(columns) else task.columns)
