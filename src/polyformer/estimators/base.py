"""What classifier and regressor share: reading a graph and labels, training, predicting, saving and loading."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError

from polyformer.devices import choose_device
from polyformer.errors import InvalidData, InvalidParameter
from polyformer.estimators.inputs import ReadLabels, as_graph, is_graph, labels_of, masks_of, read_node_ids
from polyformer.estimators.parameters import ModelParameters
from polyformer.estimators.trained import TrainedModel
from polyformer.feature_preparation import prepare_task
from polyformer.files import new_directory, reading
from polyformer.graph import Graph
from polyformer.objectives import label_units
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.config import write_estimator_config
from polyformer.runs.known_labels import StoredLabels
from polyformer.runs.run import Run
from polyformer.runs.saved_model import ModelCard
from polyformer.splits import Split, has_label, hold_out
from polyformer.tasks import Task, check_trainable
from polyformer.tokens import check_nodes
from polyformer.training.loop import Trainer, derive_seed
from polyformer.training.workload import check_label_input, label_masks_of, workload_of

__all__ = ["NodeEstimator", "NotTrained"]


_CLASS_KINDS: dict[str, type] = {"b": bool, "f": float, "i": int, "u": int, "U": str}
"""Types that the names of classes may have, by the kind of a numpy array."""


def _named_classes(kind: str, names: list[Any]) -> np.ndarray:
    return np.array(names, next(known for known in _CLASS_KINDS.values() if known.__name__ == kind))


class NotTrained(InvalidParameter, NotFittedError):
    """An estimator is asked before it was trained."""


class NodeEstimator(ModelParameters):
    """A model of nodes in two habits: a graph and labels at once, or node ids of a graph that the estimator has."""

    _of_values: bool
    _trained: TrainedModel | None = None
    _graph: Graph | None = None

    @abstractmethod
    def _read_labels(self, labels: Any, unlabelled: bool) -> ReadLabels:
        """Labels of any kind as the model learns them.

        Args:
            unlabelled: some nodes may have no label.
        """

    @abstractmethod
    def predict(self, graph: Any = None, nodes: Any = None) -> np.ndarray:
        """The class or the value of each node, (n,)."""

    @abstractmethod
    def _keep_classes(self, classes: np.ndarray | None) -> None:
        """Remember what the classes are called."""

    def fit(
        self,
        graph: Any,
        labels: Any = None,
        train: Any = None,
        val: Any = None,
        *,
        reporter: Reporter = SILENT,
    ) -> Self:
        """Train on some nodes, and select the epoch by the score on others.

        Args:
            graph: a Graph, a torch_geometric Data, a NetworkX graph or a scipy sparse adjacency matrix; or (n,) node
                ids, if the estimator was made with ``graph=…``.
            labels: (N,) a label for each node of the graph, or (n,) one for each node id. A node without a label has
                -1, NaN, None or empty text; every node id must have a label. ``y`` of a Data by default.
            train: node ids or a mask; by default ``train_mask`` of a Data, else all nodes with a label that are not in
                ``val``.
            val: node ids or a mask; by default ``val_mask`` of a Data, else a fifth of ``train``, class by class.
            reporter: hears of every epoch, and can end the training.
        """
        self._resolve_settings(None)  # refuses unknown names and values before anything is read
        seed, device = self._check_seed(), choose_device(self.device)
        read_graph, read, train, val = self._read_input(graph, labels, train, val)
        split = self._split(read, train, val, seed)
        settings = self._resolve_settings(len(split.train))
        metric = "" if settings["metric"] == "default" else settings["metric"]
        task = Task("fit", read_graph, read.values, [split], "given", metric, read.class_names)
        task = prepare_task(task, settings["scale_features"])
        check_trainable(task, split)
        card, prepared = self._card(task, split, settings), task.graph
        model = card.build(derive_seed(seed, 0)).to(device)
        training = card.training.resolve(len(split.train), prepared.num_features)
        check_label_input(model, self.model, split)
        labels = StoredLabels.of(task, split) if card.label_channels else None
        masks = label_masks_of(model, training, len(split.train), seed)
        model.bind(prepared, workload_of(split, training, labels=labels and labels.known, masks=masks))
        trainer = Trainer(model, card.reader, card.metric, read.values, split, training, seed=seed, reporter=reporter)
        trainer.run()
        self._trained = TrainedModel(replace(card, calibration=trainer.calibrate()), model, labels)
        self._graph = prepared
        self.preprocessing_, self.n_features_in_ = list(task.preprocessing), prepared.num_features
        self.best_epoch_, self.best_score_ = trainer.stopping.best_epoch, trainer.stopping.best_score
        self._keep_classes(read.classes)
        return self

    def _card(self, task: Task, split: Split, settings: dict[str, Any]) -> ModelCard:
        """The description of the model that is to be trained on a prepared task."""
        card = ModelCard.of(self.model, settings, task)
        if task.is_regression and settings["targets"] == "standard":
            return replace(card, units=label_units(task.labels[split.train]))
        return card

    def _read_input(self, first: Any, labels: Any, train: Any, val: Any) -> tuple[Graph, ReadLabels, Any, Any]:
        """Graph, labels of all its nodes, and training and validation nodes as far as they are named."""
        if self.graph is not None and not is_graph(first):
            graph = as_graph(self.graph)
            nodes = read_node_ids(first, graph.num_nodes)
            if labels is None:
                raise InvalidData("'y' must have a label for each node. Got none: requires y to be passed.")
            read = self._read_labels(labels, unlabelled=False)
            if len(read.values) != len(nodes):
                raise InvalidData(f"'y' must have a label for each of {len(nodes)} nodes. Got {len(read.values)}.")
            return graph, read.on(nodes, graph.num_nodes), nodes if train is None and val is None else train, val
        graph = as_graph(first)
        labels = labels_of(first) if labels is None else labels
        if labels is None:
            raise InvalidData(f"'labels' must have a label for each of {graph.num_nodes} nodes. Got none.")
        read = self._read_labels(labels, unlabelled=True)
        if len(read.values) != graph.num_nodes:
            raise InvalidData(
                f"'labels' must have shape ({graph.num_nodes},), one per node. Got ({len(read.values)},)."
            )
        if train is None:
            train, masked_val = masks_of(first)
            val = masked_val if val is None else val
        return graph, read, train, val

    def _split(self, read: ReadLabels, train: Any, val: Any, seed: int) -> Split:
        labels, count = read.values, len(read.values)
        none = np.empty(0, np.int64)
        val_nodes = check_nodes(val, count)
        train_nodes = check_nodes(train, count)
        if train_nodes is None:
            labelled = np.flatnonzero(has_label(labels))
            train_nodes = labelled if val_nodes is None else np.setdiff1d(labelled, val_nodes)
        if len(train_nodes) == 0:
            raise InvalidData("'train' must name at least one node. Got none.")
        if val_nodes is None:
            Split(train_nodes, none, none).check(labels)
            train_nodes, val_nodes = hold_out(train_nodes, labels, seed=seed)
        return Split(train_nodes, val_nodes, none)

    def _scores(self, graph: Any, nodes: Any) -> np.ndarray:
        """Probabilities (n, C) or values (n, 1); see ``predict`` for the arguments."""
        trained = self._fitted()
        target, ids = self._target(graph, nodes)
        asked = np.arange(target.num_nodes) if ids is None else ids
        gone = np.intersect1d(asked, target.removed)
        if len(gone):
            raise InvalidData(
                f"Node {int(gone[0])} was removed from the graph, so it is not predicted. Name nodes that are there: "
                f"nodes=graph.present_nodes."
            )
        return trained.scores(target, ids)

    def _target(self, first: Any, nodes: Any) -> tuple[Graph, np.ndarray | None]:
        """The prepared graph that is asked about, and the node ids; None for all nodes."""
        card = self._fitted().card
        if first is not None and is_graph(first):
            graph = card.prepare(as_graph(first))
        elif first is not None and self._graph is None and self.graph is None:
            graph = as_graph(first)  # refuses it: without a graph, node ids mean nothing
        else:
            graph = self._last_graph()
            if first is not None:
                if nodes is not None:
                    raise InvalidParameter("Name the nodes once: as the first argument or as nodes=…. Got both.")
                return graph, read_node_ids(first, graph.num_nodes)
        return graph, None if nodes is None else read_node_ids(nodes, graph.num_nodes)

    def _last_graph(self) -> Graph:
        """The prepared graph of the training; a loaded estimator has the graph that it was given as a parameter."""
        if self._graph is None and self.graph is not None:
            self._graph = self._fitted().card.prepare(as_graph(self.graph))
        if self._graph is None:
            raise InvalidParameter("The estimator was loaded without its graph. Pass graph=….")
        return self._graph

    def _judge(self, metric: Callable[..., float], graph: Any, labels: Any, sample_weight: Any, nodes: Any) -> float:
        """The metric of predictions on nodes with a label; see ``score`` for the arguments."""
        self._fitted()
        graph, nodes, known = self._judged_nodes(graph, labels, nodes)
        return float(metric(known, self.predict(graph, nodes), sample_weight=sample_weight))

    def _judged_nodes(self, graph: Any, labels: Any, nodes: Any) -> tuple[Any, Any, np.ndarray]:
        """What to predict, graph and nodes, and the known labels of these nodes as they were given."""
        if not is_graph(graph):
            return graph, nodes, np.asarray(labels)
        array = np.asarray(labels)
        read = self._read_labels(labels, unlabelled=True).values
        ids = np.flatnonzero(has_label(read)) if nodes is None else read_node_ids(nodes, len(array))
        return graph, ids, array[ids]

    def _graphs(self) -> Iterator[Any]:
        yield self.graph
        yield self._graph

    def _fitted(self) -> TrainedModel:
        if self._trained is None:
            raise NotTrained(f"The {type(self).__name__} is not trained yet. Call fit first, or load one.")
        return self._trained

    def __sklearn_is_fitted__(self) -> bool:
        return self._trained is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, False
        tags.target_tags.required = True
        return tags

    def save(self, directory: str | Path) -> None:
        """Write the trained estimator as JSON and safetensors into a new directory; the graph is not written."""
        trained, classes = self._fitted(), getattr(self, "classes_", None)
        named = None
        if classes is not None:
            named = {"kind": _CLASS_KINDS[classes.dtype.kind].__name__, "names": classes.tolist()}
        with new_directory(Path(directory)) as folder:
            write_estimator_config(folder, trained.card, self._check_seed(), self.device, named)
            trained.save(folder)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """An estimator from :meth:`save`, or from the run directory of ``polyformer train``."""
        run = Run.open_model(directory)
        card, model = run.load("cpu" if run.device == "cpu" else "auto")  # the device of the training may not be here
        of_values = card.objective == "regression"
        if of_values != cls._of_values:
            other = "PolyFormerRegressor" if of_values else "PolyFormerClassifier"
            raise InvalidParameter(f"'{directory}' holds a {card.model} for {card.objective}. Use {other}.load.")
        estimator = cls(model=card.model, seed=run.seed, device=run.device, **card.settings)
        estimator._trained = TrainedModel(card, model, run.labels)
        estimator.n_features_in_ = card.in_channels
        stored = run.classes
        with reading(run.path, "Train it again."):
            classes = np.arange(card.num_classes) if stored is None else _named_classes(**stored)
            if len(classes) != card.num_classes:
                raise ValueError(f"it names {len(classes)} classes of {card.num_classes}")
        estimator._keep_classes(None if of_values else classes)
        return estimator
