"""A trained model on disk: ``config.json`` and ``model.safetensors``, never a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from polyformer.columns import Column, columns_from_json
from polyformer.errors import DataNotFound, FileCorrupt
from polyformer.feature_preparation import prepare_alike
from polyformer.feature_scaling import FeatureScaling
from polyformer.files import read_json
from polyformer.graph import Graph
from polyformer.models import MODELS, NodeModel
from polyformer.settings import split_settings
from polyformer.tasks import OBJECTIVES, Objective
from polyformer.training.checkpoint import read_tensors, write_tensors
from polyformer.training.settings import TrainingSettings

__all__ = ["CONFIG", "WEIGHTS", "ModelCard", "load_model", "save_weights"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"


@dataclass(frozen=True)
class ModelCard:
    """What is needed to build a model again: its name, settings, widths, and how inputs and outputs are read.

    Attributes:
        columns: of the table that the features come from, or those made from the structure.
        units: centre and scale of real-valued outputs.
        threshold: of two unequal classes, the probability from which on the second is predicted; it is found in the
            end of training, so that it is stored with the parameters. None: the most probable class.
        scaling: by which features are scaled before the model reads them; None for features as they are.
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
    threshold: float | None = None
    scaling: FeatureScaling | None = None

    @property
    def reader(self) -> Objective:
        """How outputs become losses and scores."""
        return OBJECTIVES[self.objective].in_units(*self.units)

    @property
    def training(self) -> TrainingSettings:
        """The training part of the settings."""
        settings: TrainingSettings = split_settings(
            [MODELS[self.model].settings_type, TrainingSettings], self.settings
        )[1]
        return settings

    def build(self, seed: int) -> NodeModel:
        """The model with freshly drawn parameters; the same for the same seed."""
        kind = MODELS[self.model]
        settings = split_settings([kind.settings_type, TrainingSettings], self.settings)[0]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return kind(self.in_channels, self.reader.out_channels(self.num_classes), settings)

    def prepare(self, graph: Graph) -> Graph:
        """A graph with its features as the model reads them: scaled, or made from the structure, as in training.

        A graph that was prepared already stays as it is.
        """
        return prepare_alike(graph, self.columns, self.scaling)

    def to_json(self) -> dict[str, Any]:
        """For ``config.json``, which is written before training and so holds no threshold."""
        return {name: value for name, value in asdict(self).items() if name != "threshold"}

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


def save_weights(directory: Path, parameters: Mapping[str, torch.Tensor], threshold: float | None = None) -> None:
    """Write ``model.safetensors``; its header holds the threshold of :class:`ModelCard`."""
    write_tensors(directory / WEIGHTS, dict(parameters), {"format": 1, "threshold": threshold})


def load_model(directory: Path) -> tuple[ModelCard, NodeModel]:
    """The model that a run or a classifier left in ``directory``, in evaluation mode."""
    if not directory.is_dir():
        raise DataNotFound(f"There is no directory '{directory}'. Pass a run directory or a saved classifier.")
    config = read_json(directory / CONFIG, "a run directory or a saved classifier")
    if not isinstance(config, dict) or "card" not in config:
        raise FileCorrupt(f"'{directory / CONFIG}' does not describe a model. It may be of another version.")
    card = ModelCard.from_json(config["card"])
    if not (directory / WEIGHTS).exists():
        raise DataNotFound(
            f"'{directory}' holds no trained model yet. Finish it with: polyformer train --resume --out {directory}"
        )
    tensors, about = read_tensors(directory / WEIGHTS, "model")
    model = card.build(seed=0)
    try:
        model.load_state_dict(tensors)
    except RuntimeError:
        raise FileCorrupt(
            f"'{directory / WEIGHTS}' does not fit '{directory / CONFIG}'. They come from different runs."
        ) from None
    model.eval()
    return replace(card, threshold=about.get("threshold")), model
