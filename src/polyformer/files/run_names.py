"""Names of the files in the directory of a run or of a saved classifier that more than one room reads."""

from __future__ import annotations

__all__ = ["CONFIG", "LABELS", "WEIGHTS"]

CONFIG = "config.json"
"""What was asked, and how to build the model."""

LABELS = "labels.safetensors"
"""The labels that a model with label columns is shown, and what was held out when it was trained."""

WEIGHTS = "model.safetensors"
"""The parameters of the trained model."""
