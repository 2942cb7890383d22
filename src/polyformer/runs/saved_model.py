"""A trained model: the card that says how to build it, and ``model.safetensors``, its parameters; never a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from polyformer.calibration import Calibration
from polyformer.columns import Column, columns_from_json, columns_to_read
from polyformer.coverage import Coverage
from polyformer.errors import FileCorrupt, InvalidParameter
from polyformer.feature_preparation import prepare_alike
from polyformer.feature_scaling import FeatureScaling
from polyformer.files import RUN, check_identity, read_tensors, reading, run_identity, write_tensors
from polyformer.files.run_names import CONFIG, WEIGHTS
from polyformer.files.run_schemas import WEIGHTS as WEIGHTS_SCHEMA
from polyformer.graph import Graph
from polyformer.label_input import label_width
from polyformer.machine import require_memory
from polyformer.models import MODELS, NodeModel
from polyformer.objectives import OBJECTIVES, Objective
from polyformer.settings import split_settings
from polyformer.tasks import Task
from polyformer.training.settings import TrainingSettings

__all__ = ["WEIGHTS", "ModelCard", "read_weights", "save_weights"]

_SMALL_MODEL_BYTES = 1 << 28


@dataclass(frozen=True)
class ModelCard:
    """What is needed to build a model again: its name, settings, widths, and how inputs and outputs are read.

    Attributes:
        columns: columns of the table that the features come from, or columns made from the structure.
        units: centre and scale of real-valued outputs.
        calibration: temperature and threshold; found at the end of training, so stored with the parameters.
        scaling: by which features are scaled before the model reads them; None for features as they are.
        label_channels: how many columns of known labels the model reads beside its features; 0 for none.
    """

    model: str
    settings: dict[str, Any]
    in_channels: int
    num_classes: int
    objective: str
    metric: str
    class_names: list[str] | None = None
    columns: tuple[Column, ...] | None = None
    units: tuple[float, float] = (0.0, 1.0)
    calibration: Calibration = field(default_factory=Calibration)
    scaling: FeatureScaling | None = None
    label_channels: int = 0

    @classmethod
    def of(cls, model: str, settings: dict[str, Any], task: Task) -> ModelCard:
        """The card of a model that is about to be trained on a task whose features are prepared."""
        names = None if task.class_names is None else list(task.class_names)
        kind, scaling = task.objective.name, task.graph.scaling
        widths = task.graph.num_features, task.num_classes
        labels = label_width(task.num_classes) if settings.get("label_input", 0) > 0 else 0
        return cls(
            model,
            settings,
            *widths,
            kind,
            task.metric,
            names,
            task.columns,
            scaling=scaling,
            label_channels=labels,
        )

    @property
    def reader(self) -> Objective:
        """How outputs become losses and scores."""
        return OBJECTIVES[self.objective].in_units(*self.units).at_temperature(self.calibration.temperature)

    @property
    def threshold(self) -> float | None:
        """The probability from which on the second of two unequal classes is predicted; None predicts the most probable
        class."""
        return self.calibration.threshold

    def coverage(self, share: float) -> Coverage:
        """What makes predictions hold the truth with this frequency."""
        return Coverage.of(self.calibration, share, of_values=self.objective == "regression")

    @property
    def training(self) -> TrainingSettings:
        """The training part of the settings."""
        settings: TrainingSettings = split_settings(
            [MODELS[self.model].settings_type, TrainingSettings], self.settings
        )[1]
        return settings

    def build(self, seed: int) -> NodeModel:
        """The model with freshly drawn parameters; the same for the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._construct()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter and buffer of the model; nothing of their size is allocated."""
        with torch.device("meta"):
            model = self._construct()
        return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}

    def _construct(self) -> NodeModel:
        kind = MODELS[self.model]
        settings = split_settings([kind.settings_type, TrainingSettings], self.settings)[0]
        self._require_memory(settings)
        model = kind(self.in_channels + self.label_channels, self.reader.out_channels(self.num_classes), settings)
        model.label_channels = self.label_channels
        return model

    def _require_memory(self, settings: Any) -> None:
        """Refuse a model whose layers cannot fit in memory: parameters, gradients and two moments of each."""
        width = max((value for name, value in vars(settings).items() if name.endswith("channels") and value), default=1)
        layers = max(1, getattr(settings, "num_layers", 1))
        size = 16 * layers * width * width
        if size > _SMALL_MODEL_BYTES:
            what = f"A model of {layers:,} layers of width {width:,}"
            require_memory(what, size, "Lower hidden_channels or num_layers.")

    def prepare(self, graph: Graph) -> Graph:
        """A graph with its features as the model reads them: scaled, or made from the structure, as in training.

        A graph that was prepared already stays as it is.
        """
        return prepare_alike(graph, self.columns, self.scaling)

    def table_columns(self, name: str) -> tuple[Column, ...]:
        """The columns of the table that the model was trained on; none where features were made from the structure.

        Args:
            name: what the model is called where there was no table.
        """
        columns = columns_to_read(self.columns)
        if columns is None:
            raise InvalidParameter(f"'{name}' was not trained on a table, so there are no columns to read alike.")
        return columns

    def to_json(self) -> dict[str, Any]:
        """For ``config.json``, which is written before training and so holds no calibration."""
        return {name: value for name, value in asdict(self).items() if name != "calibration"}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ModelCard:
        """From ``config.json``."""
        try:
            units = tuple(content.get("units", (0.0, 1.0)))
            columns, scaling = (
                columns_from_json(content.get("columns")),
                FeatureScaling.from_json(content.get("scaling")),
            )
            return cls(**{**content, "columns": columns, "units": units, "scaling": scaling})
        except (TypeError, KeyError):
            raise FileCorrupt(
                "The model's description has other fields than this version writes. Train it again."
            ) from None


def save_weights(
    directory: Path, parameters: Mapping[str, torch.Tensor], calibration: Calibration | None = None
) -> None:
    """Write ``model.safetensors`` beside its ``config.json``; its header holds the calibration of its card."""
    about = (Calibration() if calibration is None else calibration).to_json()
    write_tensors(
        directory / WEIGHTS, dict(parameters), {"format": 1, "calibration": about, RUN: run_identity(directory)}
    )


def read_weights(directory: Path, card: ModelCard) -> tuple[NodeModel, Calibration]:
    """The model of a card with the parameters in ``directory``, in evaluation mode, and its calibration."""
    tensors, about = read_tensors(directory / WEIGHTS, WEIGHTS_SCHEMA)
    check_identity(directory / WEIGHTS, about)
    # Compared before the model is built: a config that claims wide layers must not cost their memory.
    if card.shapes() != {name: tuple(tensor.shape) for name, tensor in tensors.items()}:
        raise FileCorrupt(
            f"'{directory / WEIGHTS}' does not fit '{directory / CONFIG}'. They come from different runs."
        )
    model = card.build(seed=0)
    with reading(directory / WEIGHTS, "Train it again."):
        model.load_state_dict(tensors)
    model.eval()
    return model, Calibration.from_json(about)
