"""The noun of this room: a run, a directory that holds what was asked, what happened, the model and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.devices import choose_device
from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter
from polyformer.files import is_folder, new_directory
from polyformer.filters import Filters
from polyformer.graph import Graph
from polyformer.label_input import KnownLabels
from polyformer.models import NodeModel
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.application import describe_nodes, new_nodes_of, predict_nodes
from polyformer.runs.config import check_run, read_config, write_config
from polyformer.runs.data import load_task, read_alike
from polyformer.runs.directory import check_new, checkpoint_file, locked_directory, read_result, tokens_folder
from polyformer.runs.exporting import Export, export_model
from polyformer.runs.facts import DataFacts
from polyformer.runs.known_labels import StoredLabels, read_labels, write_labels
from polyformer.runs.metrics_file import read_metrics
from polyformer.runs.places import place_of_data
from polyformer.runs.request import RunRequest
from polyformer.runs.saved_model import WEIGHTS, ModelCard, read_weights
from polyformer.splits import Split
from polyformer.tasks import Task

__all__ = ["Run"]


class Run:
    """A run directory: what was asked, what happened in each epoch, the trained model and the result.

    It holds ``config.json``, ``metrics.jsonl``, ``checkpoint/state.safetensors``, ``model.safetensors`` and
    ``result.json``, and ``tokens/`` where tokens do not fit in memory. A saved classifier can be opened too: it has a
    card and a model, but does not know its data.

    Args:
        path: the directory, which need not exist yet; :meth:`open` refuses one that does not hold a run.

    Example:
        >>> import polyformer as pf, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> settings = {"order": 2, "hidden_channels": 8, "epochs": 2}
        >>> run = pf.train("minefield:width=20,height=10", out=f"{folder}/run", **settings)
        >>> run = pf.Run.open(f"{folder}/run")
        >>> run.request.model, run.result["metric"], len(run.metrics)
        ('polyformer', 'roc_auc', 2)
        >>> run.predict(nodes=[0, 5, 7]).shape
        (3, 2)
        >>> run.filters(nodes=[0, 5, 7]).responses.shape  # nodes, heads, frequencies
        (3, 8, 65)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """A run that exists, finished or not."""
        check_run(Path(path))
        return cls(path)

    @classmethod
    def open_model(cls, path: str | Path) -> Run:
        """A run or a saved classifier: whatever has a model."""
        run = cls(path)
        if not is_folder(run.path):
            raise DataNotFound(f"There is no directory '{path}'. Pass a run directory or a saved classifier.")
        read_config(run.path)
        return run

    @classmethod
    def create(
        cls,
        path: Path,
        request: RunRequest,
        card: ModelCard,
        facts: DataFacts,
        labels: StoredLabels | None = None,
        trials: Sequence[Mapping[str, Any]] = (),
    ) -> Run:
        """Make a new run directory; it appears together with its ``config.json``, and the labels that it is to keep."""
        check_new(path)
        with new_directory(path) as folder:
            write_config(folder, request, card, facts, trials)
            write_labels(folder, labels)
        return cls(path)

    def __repr__(self) -> str:
        return f"Run('{self.path}')"

    # What was asked.

    @cached_property
    def config(self) -> dict[str, Any]:
        """All that is needed to repeat the run, as ``config.json`` holds it; the properties below read it."""
        return read_config(self.path)

    @property
    def request(self) -> RunRequest:
        """What the run was asked for; all its settings stand for those of its preset, whose file may have changed.

        Versions that did not scale features had no setting for that.
        """
        check_run(self.path)
        stored = {field.name: self.config[field.name] for field in fields(RunRequest) if field.name in self.config}
        settings = {"scale_features": "none", **(stored["settings"] or {})}
        return RunRequest(**stored | {"preset": None, "settings": settings})

    @property
    def data(self) -> str | None:
        """The name or the path of the data that the run was trained on; None for a saved estimator."""
        return self.config.get("data")

    @property
    def classes(self) -> dict[str, Any] | None:
        """The user's own classes of a saved estimator, their kind and values; None where classes are 0, 1, …"""
        return self.config.get("classes")

    def _stored(self, name: str) -> Any:
        if name not in self.config:
            raise FileCorrupt(f"'{self.path}' does not say its {name}: its config.json is damaged or incomplete.")
        return self.config[name]

    @property
    def preset(self) -> str | None:
        """The preset that the run was asked to take its settings from."""
        preset: str | None = self.config.get("preset")
        return preset

    @property
    def seed(self) -> int:
        """The seed of parameters, batches and dropout."""
        return int(self._stored("seed"))

    @property
    def device(self) -> str:
        """The device that was asked for."""
        return str(self._stored("device"))

    @property
    def card(self) -> ModelCard:
        """How to build the model, and how its inputs and outputs are read; without calibration, see :meth:`load`."""
        return ModelCard.from_json(self.config["card"])

    @property
    def facts(self) -> DataFacts:
        """The data that it was trained on, in numbers."""
        return DataFacts.from_json(self.config["task"])

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The settings that were tried before this run kept some of them; empty if it was asked for with settings."""
        return list(self.config.get("trials", []))

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what the run was made with."""
        return dict(self.config.get("versions", {}))

    # What happened.

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every epoch so far: ``epoch``, ``loss``, ``val`` (None where it is not a number) and ``seconds``."""
        return read_metrics(self.path)

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, once the run has finished."""
        return read_result(self.path)

    @property
    def checkpoint(self) -> Path:
        """The file from which training goes on."""
        return checkpoint_file(self.path)

    @property
    def tokens(self) -> Path:
        """Where tokens are kept that do not fit in memory."""
        return tokens_folder(self.path)

    def locked(self, patience: float = 0.0) -> AbstractContextManager[None]:
        """Keep a second process from writing to this run; released when this process ends, however it ends.

        Args:
            patience: seconds to wait for a process that is about to end.
        """
        return locked_directory(self.path, patience)

    # What can be done with it.

    def task(self, data: str | None = None, data_root: str | None = None, reporter: Reporter = SILENT) -> Task:
        """The data that the run was trained on, or another graph, with features as the model reads them.

        Args:
            data: name or path of another graph; its tables are read as those of the training were.
            data_root: where data files are looked for first; where the run looked by default.
            reporter: hears how far reading is, and what was taken as what in the files of another graph.
        """
        if data is not None:
            shown = self.card.label_channels > 0
            return read_alike(self.card, data, data_root, reporter=reporter, applied=True, held_out=shown)
        if "data" not in self.config:
            raise InvalidParameter(
                f"'{self.path}' is a saved classifier that does not know its data. Pass the PATH of a graph."
            )
        request = self.request
        task = read_alike(
            self.card, request.data, data_root or request.data_root, request.protocol, reporter=reporter.quiet()
        )
        if task.graph.version > self.facts.version:
            reporter.say(
                f"the graph has changed since training: version {task.graph.version}, trained on {self.facts.version}"
            )
        return task

    def task_and_split(self, data_root: str | None = None, reporter: Reporter = SILENT) -> tuple[Task, Split]:
        """The data that the run was trained on, and its split; the data may lie elsewhere now."""
        request = replace(self.request, tokens=None)  # the token directory may be gone since
        request = request if data_root is None else replace(request, data_root=data_root)
        return load_task(request, self.card, reporter.quiet())

    def load(self, device: str = "cpu") -> tuple[ModelCard, NodeModel]:
        """The card with the calibration that ended the training, and the model in evaluation mode on the device."""
        place = choose_device(device)
        if not (self.path / WEIGHTS).exists():
            raise DataNotFound(
                f"'{self.path}' holds no trained model yet. Finish it with: polyformer train --resume --out {self.path}"
            )
        model, calibration = read_weights(self.path, self.card)
        return replace(self.card, calibration=calibration), model.to(place)

    def model(self, device: str = "cpu") -> NodeModel:
        """The trained model in evaluation mode; bind it to a graph before it is asked for nodes."""
        return self.load(device)[1]

    @cached_property
    def labels(self) -> StoredLabels | None:
        """The labels of the training; None where the model is shown no labels."""
        return read_labels(self.path, self.card)

    def shown_labels(self, task: Task, data: str | None = None) -> KnownLabels | None:
        """The labels that the model is shown in a task; None where it is shown no labels.

        These are all labels of the task but those that are held out: in the run's own data, as it is now, every label
        that was known at training and not for training; in any graph those of validation and test nodes.

        Args:
            data: where the task was read from; None for the run's own data.
        """
        if self.labels is None:
            return None
        own = data is None or place_of_data(data) == self.data
        split = None if own and task.drawn else self.split_of(task)  # drawn anew, it would hide labels of the training
        return self.labels.in_task(task, self.card, own, split)

    def split_of(self, task: Task) -> Split | None:
        """The split of a task that has the number of the run's split, or else its first; None if it has none."""
        number = int(self.config.get("split", 0))
        return task.splits[number if number < len(task.splits) else 0] if task.splits else None

    def predict(
        self,
        nodes: Any = None,
        graph: Graph | None = None,
        *,
        show_labels: bool = True,
        device: str = "auto",
        reporter: Reporter = SILENT,
    ) -> np.ndarray:
        """Probabilities of the classes, (n, C), or values of a regression, (n,); NaN for nodes that were removed.

        Args:
            nodes: node ids or a mask; all nodes by default.
            graph: another graph with the same features; the run's own data by default.
            show_labels: False shows a model that reads known labels none of them.
            device: the device to compute on: auto, cpu, cuda or mps.
        """
        card, model = self.load(device)
        target, labels = self._target(graph, reporter, show_labels)
        return predict_nodes(self.path, card, model, target, nodes, reporter, labels)

    def predict_set(
        self,
        nodes: Any = None,
        graph: Graph | None = None,
        *,
        coverage: float = 0.9,
        device: str = "auto",
        reporter: Reporter = SILENT,
    ) -> np.ndarray:
        """Which classes are in each node's set, (n, C) bool; of a regression the ends of each interval, (n, 2).

        Sets and intervals hold the truth with the frequency ``coverage``; see :mod:`polyformer.coverage`.

        Args:
            nodes: node ids or a mask; all nodes by default.
            graph: another graph with the same features; the run's own data by default.
            device: the device to compute on: auto, cpu, cuda or mps.
        """
        card, model = self.load(device)
        wanted = card.coverage(coverage)
        target, labels = self._target(graph, reporter)
        scores = predict_nodes(self.path, card, model, target, nodes, reporter, labels)
        return wanted.intervals(scores[:, None]) if wanted.of_values else wanted.sets(scores)

    def predict_new(
        self,
        features: Any,
        edges: Any,
        mode: str = "frozen",
        *,
        weights: Any = None,
        tokens: str | Path | None = None,
        graph: Graph | None = None,
        tolerance: float = 1e-3,
        device: str = "auto",
    ) -> np.ndarray:
        """Probabilities (m, C), or values (m,), of m nodes that are not in the graph, which is not changed.

        Args:
            features: (m, d) as they are stored, not scaled.
            edges: (e, 2) node ids; N, N+1, … are the new nodes, and every edge has at least one of them.
            mode: ``frozen``, the neighbours keep their tokens and degrees; or ``full``, the neighbourhood feels the new
                nodes.
            weights: (e,) weights of the edges; 1 by default.
            tokens: a token directory of all nodes; without one, the tokens that are needed are computed.
            graph: another graph with the same features; the run's own data by default.
            tolerance: of the full way, where ``tokens`` are given.
            device: the device to compute on: auto, cpu, cuda or mps.
        """
        card, model = self.load(device)
        target, labels = self._target(graph, SILENT)
        predictor = new_nodes_of(card, model, target, None if tokens is None else Path(tokens), labels)
        scores = predictor.predict(features, edges, mode, weights, tolerance)
        return scores[:, 0] if card.objective == "regression" else scores

    def filters(
        self,
        nodes: Any = None,
        graph: Graph | None = None,
        *,
        clusters: int | None = None,
        device: str = "auto",
        reporter: Reporter = SILENT,
    ) -> Filters:
        """The filters of the nodes: coefficients (n, H, K+1), responses (n, H, L) on a grid of λ, and kinds of filters.

        The response is the first layer's alone; where ``exact`` is False, more stands around it.

        Args:
            nodes: node ids or a mask; by default all nodes that were not removed.
            graph: another graph with the same features; the run's own data by default.
            clusters: how many kinds of filters; by default 2 to 6, chosen by silhouette.
            device: the device to compute on: auto, cpu, cuda or mps.
        """
        card, model = self.load(device)
        target, labels = self._target(graph, reporter)
        return describe_nodes(self.path, card, model, target, nodes, clusters, reporter, labels)

    def export(self, out: str | Path) -> Export:
        """Write the model as a function of tokens, .onnx or .pt2, with a JSON beside it on how tokens are made."""
        card, model = self.load()
        return export_model(card, model, Path(out), self.config.get("task", {}).get("preprocessing", []))

    def _target(
        self, graph: Graph | None, reporter: Reporter, show_labels: bool = True
    ) -> tuple[Graph, KnownLabels | None]:
        """A graph as the model reads it, and the labels that the model is shown in it."""
        stored = self.labels
        if graph is None:
            task = self.task(reporter=reporter)
            target, labels = task.graph, self.shown_labels(task)
        else:
            target = self.card.prepare(graph)
            labels = None if stored is None else stored.in_graph(target)
        return target, labels if show_labels or stored is None else stored.none_in(target)
