"""PolyFormerClassifier: fit, predict, look at the filters, save, load."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from polyformer.bases import Basis, basis_config, check_order, resolve_basis
from polyformer.errors import InvalidData, InvalidParameter
from polyformer.feature_preparation import prepare_graph
from polyformer.files import new_directory, read_json, write_json
from polyformer.filters import filter_coefficients, filter_response
from polyformer.graph import Graph
from polyformer.metrics import predicted_classes
from polyformer.models import Workload
from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings
from polyformer.nn.checks import check_at_least
from polyformer.prediction import predict_scores
from polyformer.settings import split_settings
from polyformer.splits import Split, hold_out
from polyformer.tasks import Task, check_labels, check_trainable
from polyformer.tokens import check_nodes
from polyformer.training.loop import Observer, Trainer, derive_seed, workload_of
from polyformer.training.run import choose_device, versions
from polyformer.training.saved_model import CONFIG, ModelCard, load_model, save_weights
from polyformer.training.settings import TrainingSettings

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from polyformer.reports.findings import Filters

__all__ = ["PolyFormerClassifier"]

_MODEL, _TRAINING = PolyFormerSettings(), TrainingSettings()


class PolyFormerClassifier:
    """PolyFormer as an estimator of node classes.

    Every argument is described by ``polyformer train --help`` and :class:`PolyFormerSettings`,
    :class:`TrainingSettings`; the defaults are those of the command line.

    Args:
        basis: a name, a spec such as ``"jacobi:a=1,b=0.5"`` or a basis object, also one of your own.
        seed: seed for the initial parameters, batches, dropout and drawn validation nodes.
        device: ``auto``, ``cpu`` or ``cuda``.

    Example:
        >>> from polyformer.datasets import load_dataset
        >>> task = load_dataset("minefield:width=30,height=30")
        >>> clf = PolyFormerClassifier(order=3, hidden_channels=16, epochs=2)
        >>> clf = clf.fit(task.graph, task.labels, train=task.splits[0].train)
        >>> clf.predict_proba(task.graph).shape
        (900, 2)
    """

    def __init__(
        self,
        basis: str | Basis = "chebyshev",
        order: int = _MODEL.order,
        self_loops: bool = _MODEL.self_loops,
        hidden_channels: int = _MODEL.hidden_channels,
        epochs: int = _TRAINING.epochs,
        seed: int = 0,
        *,
        num_layers: int = _MODEL.num_layers,
        heads: int = _MODEL.heads,
        ffn_channels: int | None = _MODEL.ffn_channels,
        mlp_ratio: float = _MODEL.mlp_ratio,
        decay: float = _MODEL.decay,
        dropout: float = _MODEL.dropout,
        attention_dropout: float = _MODEL.attention_dropout,
        activation: str = _MODEL.activation,
        scale: bool = _MODEL.scale,
        keep_norms: bool = _MODEL.keep_norms,
        token_route: str = _MODEL.token_route,
        lr: float = _TRAINING.lr,
        weight_decay: float = _TRAINING.weight_decay,
        attention_lr: float | None = _MODEL.attention_lr,
        attention_weight_decay: float | None = _MODEL.attention_weight_decay,
        schedule: str = _TRAINING.schedule,
        optimizer: str = _TRAINING.optimizer,
        patience: int = _TRAINING.patience,
        batch_size: int | str = _TRAINING.batch_size,
        shuffle: str = _TRAINING.shuffle,
        class_weights: str = _TRAINING.class_weights,
        targets: str = _TRAINING.targets,
        scale_features: str = _TRAINING.scale_features,
        metric: str = _TRAINING.metric,
        device: str = "auto",
    ) -> None:
        check_at_least(0, seed=seed)
        self.seed, self.device = int(seed), device
        self.settings: dict[str, Any] = {
            "basis": basis_config(resolve_basis(basis), check_order(order)),
            "order": order,
            "self_loops": self_loops,
            "hidden_channels": hidden_channels,
            "epochs": epochs,
            "num_layers": num_layers,
            "heads": heads,
            "ffn_channels": ffn_channels,
            "mlp_ratio": mlp_ratio,
            "decay": decay,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation": activation,
            "scale": scale,
            "keep_norms": keep_norms,
            "token_route": token_route,
            "lr": lr,
            "weight_decay": weight_decay,
            "attention_lr": attention_lr,
            "attention_weight_decay": attention_weight_decay,
            "schedule": schedule,
            "optimizer": optimizer,
            "patience": patience,
            "batch_size": batch_size,
            "shuffle": shuffle,
            "class_weights": class_weights,
            "targets": targets,
            "scale_features": scale_features,
            "metric": metric,
        }
        parts = split_settings([PolyFormerSettings, TrainingSettings], self.settings)
        self.settings = {name: value for part in parts for name, value in asdict(part).items()}
        self._card: ModelCard | None = None
        self._model: PolyFormerModel | None = None
        self._graph: Graph | None = None

    def fit(
        self, graph: Graph, labels: Any, train: Any, val: Any = None, observer: Observer | None = None
    ) -> PolyFormerClassifier:
        """Train on the nodes ``train``, selecting the epoch by the score on ``val``.

        Args:
            labels: (N,) class numbers 0, 1, …; -1 where unknown.
            train: node ids or a mask.
            val: node ids or a mask; by default a fifth of ``train`` is drawn, class by class.
            observer: is told after every epoch.
        """
        classes = check_labels(labels, graph.num_nodes)
        if classes.dtype.kind == "f":
            raise InvalidData("'labels' must be class numbers 0, 1, …. Got real values. Number the classes first.")
        least = int(classes[classes >= 0].min(initial=np.iinfo(np.int64).max))
        if 0 < least < np.iinfo(np.int64).max:
            raise InvalidData(
                f"'labels' must be numbered from 0. The smallest is {least}. Number them again, e.g. with "
                f"np.unique(labels, return_inverse=True)."
            )
        split = self._split(graph, classes, train, val)
        graph, columns, self.preprocessing_ = prepare_graph(graph, None, self.settings["scale_features"])
        metric = self.settings["metric"]
        task = Task("fit", graph, classes, [split], "given", "" if metric == "default" else metric)
        check_trainable(task, split)
        card = ModelCard(
            "polyformer",
            self.settings,
            graph.num_features,
            task.num_classes,
            task.objective.name,
            task.metric,
            columns=columns,
            scaling=graph.scaling,
        )
        model = cast(PolyFormerModel, card.build(derive_seed(self.seed, 0)))
        model.to(choose_device(self.device))
        training = card.training.resolve(len(split.train), graph.num_features)
        model.bind(graph, workload_of(split, training))
        trainer = Trainer(model, card.reader, card.metric, classes, split, training, seed=self.seed, observer=observer)
        trainer.run()
        self._card, self._model, self._graph = replace(card, threshold=trainer.threshold()), model.eval(), graph
        self.best_epoch_, self.best_score_ = trainer.stopping.best_epoch, trainer.stopping.best_score
        return self

    def predict_proba(self, graph: Graph) -> np.ndarray:
        """Probabilities of all nodes, of the graph of training or another with the same features: (N, C)."""
        card, model = self._fitted()
        prepared = card.prepare(graph)
        scores = predict_scores(model, card.reader, prepared)
        self._graph = prepared
        return scores

    def predict(self, graph: Graph) -> np.ndarray:
        """The class of every node, (N,) int64: the most probable, or of two unequal classes by ``threshold_``."""
        return predicted_classes(self.predict_proba(graph), self.threshold_)

    @property
    def threshold_(self) -> float | None:
        """The probability from which on the second of two unequal classes is predicted, chosen on validation nodes.

        None where the most probable class is predicted.
        """
        return self._fitted()[0].threshold

    def filter_response(
        self, nodes: Any, lam: Any, layer: int = 0, channel: int | None = None, graph: Graph | None = None
    ) -> np.ndarray:
        """The filter that each node learned: (len(nodes), heads, len(lam)).

        It is that layer's PolyAttn on its own normalised input, the residual left out; layer 0 only. The optimal basis
        needs the feature column ``channel``.

        Args:
            graph: by default the one last fitted or predicted.
        """
        model, ids = self._bound(nodes, graph)
        return filter_response(model, ids, lam, layer, channel)

    def _bound(self, nodes: Any, graph: Graph | None) -> tuple[PolyFormerModel, np.ndarray]:
        """The model, bound to nodes of the given or the last graph, and their ids."""
        card, model = self._fitted()
        graph = self._graph if graph is None else card.prepare(graph)
        if graph is None:
            raise InvalidParameter("The classifier was loaded without its graph. Pass graph=….")
        ids = check_nodes(nodes, graph.num_nodes)
        ids = np.arange(graph.num_nodes) if ids is None else ids
        model.bind(graph, Workload(np.unique(ids), len(ids)))
        return model, ids

    def plot_filters(self, nodes: Any = None, clusters: int | None = None, graph: Graph | None = None) -> go.Figure:
        """A Plotly figure of the filters that were learned, mean over heads; residual and LayerNorm are left out.

        Args:
            nodes: ids of the nodes whose filters are drawn, a line each; by default the kinds of filters of all nodes
                are drawn, with their spread.
            clusters: how many kinds; by default 2 to 6, chosen by silhouette.
            graph: by default the one last fitted or predicted.
        """
        from polyformer.reports import charts

        ids, filters = self._described_filters(nodes, clusters, graph)
        if nodes is None:
            return charts.cluster_chart(filters)
        return charts.nodes_chart(filters.lam, filters.responses.mean(axis=1), ids.tolist())

    def plot_orders(self, clusters: int | None = None, graph: Graph | None = None) -> go.Figure:
        """A Plotly figure of how much each order contributes to each kind of filter; see :meth:`plot_filters`."""
        from polyformer.reports import charts

        return charts.order_chart(self._described_filters(None, clusters, graph)[1])

    def _described_filters(self, nodes: Any, clusters: int | None, graph: Graph | None) -> tuple[np.ndarray, Filters]:
        from polyformer.reports import check_extra
        from polyformer.reports.findings import describe_filters

        check_extra()
        model, ids = self._bound(nodes, graph)
        return ids, describe_filters(model, filter_coefficients(model, ids), clusters if nodes is None else 1)

    def save(self, directory: str | Path) -> None:
        """Write the trained classifier as JSON and safetensors into a new directory."""
        card, model = self._fitted()
        with new_directory(Path(directory)) as folder:
            save_weights(folder, model.state_dict(), card.threshold)
            about = {"seed": self.seed, "device": self.device, "versions": versions()}
            write_json(folder / CONFIG, {"format": 1, "card": card.to_json(), **about})

    @classmethod
    def load(cls, directory: str | Path) -> PolyFormerClassifier:
        """A classifier from :meth:`save`, or from the run directory of ``polyformer train``."""
        card, model = load_model(Path(directory))
        if not isinstance(model, PolyFormerModel) or card.objective == "regression":
            raise InvalidParameter(
                f"'{directory}' holds no PolyFormer classifier but a {card.model} for {card.objective}."
            )
        config = read_json(Path(directory) / CONFIG, "a saved classifier")
        settings = card.settings | {"basis": resolve_basis(card.settings["basis"])}
        clf = cls(**settings, seed=config["seed"], device=config["device"])
        clf._card, clf._model = card, model
        return clf

    def _fitted(self) -> tuple[ModelCard, PolyFormerModel]:
        if self._card is None or self._model is None:
            raise InvalidParameter("The classifier is not trained yet. Call fit first, or load one.")
        return self._card, self._model

    def _split(self, graph: Graph, labels: np.ndarray, train: Any, val: Any) -> Split:
        train_nodes = check_nodes(train, graph.num_nodes)
        if train_nodes is None or len(train_nodes) == 0:
            raise InvalidData("'train' must name at least one node. Got none.")
        if val is None:
            Split(train_nodes, train_nodes[:0], train_nodes[:0]).check(labels)
            fitted_nodes, val_nodes = hold_out(train_nodes, labels, seed=self.seed)
        else:
            fitted_nodes, val_nodes = train_nodes, cast(np.ndarray, check_nodes(val, graph.num_nodes))
        return Split(fitted_nodes, val_nodes, np.empty(0, np.int64))
