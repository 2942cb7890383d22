"""Names of the files in the directory of a run or of a saved classifier that more than one room reads."""

from __future__ import annotations

__all__ = ["CONFIG", "WEIGHTS"]

CONFIG = "config.json"
"""What was asked, and how to build the model."""

WEIGHTS = "model.safetensors"
"""The parameters of the trained model."""
