"""Small runs for the tests of training."""

from __future__ import annotations

from pathlib import Path

from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run

BOARD = "minefield:width=20,height=15"
FAST = {"order": 3, "hidden_channels": 16, "heads": 4, "num_layers": 1, "epochs": 6, "batch_size": 50}


def request(**changes) -> RunRequest:
    settings = {**FAST, **changes.pop("settings", {})}
    return RunRequest(**{"data": BOARD, "device": "cpu", "settings": settings, **changes})


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in Run(run).metrics]
