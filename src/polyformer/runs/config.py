"""``config.json``: all that is needed to repeat a run, or to load a saved classifier. Read and written here alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from polyformer.errors import DataNotFound, FileCorrupt
from polyformer.files import is_folder, read_json, reporting_io_errors, write_json
from polyformer.files.run_names import CONFIG
from polyformer.files.run_schemas import ANY_CONFIG, ESTIMATOR_CONFIG, MODEL_CONFIG, RUN_CONFIG
from polyformer.runs.facts import DataFacts
from polyformer.runs.request import RunRequest
from polyformer.runs.saved_model import ModelCard
from polyformer.runs.versions import versions

__all__ = [
    "CONFIG",
    "check_run",
    "read_config",
    "write_config",
    "write_epochs",
    "write_estimator_config",
    "write_memory",
]


def read_config(directory: Path) -> dict[str, Any]:
    """What a run directory or a saved classifier says of itself; it describes a model at least."""
    path = directory / CONFIG
    knows_data = "data" in read_json(path, ANY_CONFIG)
    content: dict[str, Any] = read_json(path, RUN_CONFIG if knows_data else MODEL_CONFIG)
    return content


def check_run(directory: Path) -> None:
    """Refuse a directory that does not hold a run, which knows its data."""
    if not is_folder(directory):
        raise DataNotFound(f"There is no run directory '{directory}'. Check the path, or start a run with --out.")
    if "data" not in read_json(directory / CONFIG, ANY_CONFIG):
        raise FileCorrupt(
            f"'{directory}' is not a run directory: its config.json does not say which data it was trained on."
        )
    read_json(directory / CONFIG, RUN_CONFIG)


def write_config(
    folder: Path, request: RunRequest, card: ModelCard, facts: DataFacts, trials: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Write what a new run was asked for and what it is about to train on, and how it found its settings."""
    asked = asdict(request) | {"settings": card.settings}
    content = {"format": 1, **asked, "card": card.to_json(), "task": facts.to_json(), "versions": versions()}
    if trials:
        content["trials"] = list(trials)
    write_json(folder / CONFIG, content, RUN_CONFIG)


def write_memory(directory: Path, memory: int) -> None:
    """Record that a run goes on with another bound on memory."""
    config = read_config(directory)
    if config["memory"] != memory:
        with reporting_io_errors(CONFIG, directory):
            write_json(directory / CONFIG, config | {"memory": memory}, RUN_CONFIG)


def write_epochs(directory: Path, epochs: int) -> None:
    """Let training that was stopped count as whole: from now on so many epochs were asked for."""
    config = read_config(directory)
    for settings in (config["settings"], config["card"]["settings"]):
        settings["epochs"] = epochs
    with reporting_io_errors(CONFIG, directory):
        write_json(directory / CONFIG, config, RUN_CONFIG)


def write_estimator_config(
    folder: Path, card: ModelCard, seed: int, device: str, classes: dict[str, Any] | None = None
) -> None:
    """Write what a saved estimator is; it does not know the data that it was trained on.

    Args:
        classes: what the classes are called, and of which kind their names are; None for a regressor.
    """
    about = {"seed": seed, "device": device, "versions": versions()}
    if classes is not None:
        about["classes"] = classes
    write_json(folder / CONFIG, {"format": 1, "card": card.to_json(), **about}, ESTIMATOR_CONFIG)
