"""What the user can ask of a run; fields declared by ``setting`` are options of ``polyformer train``.

This module imports next to nothing: the command line's help reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyformer.machine import parse_bytes
from polyformer.settings import setting

__all__ = ["RunOptions", "absolute_path"]


def absolute_path(text: str) -> str:
    """A path that a run finds again from any folder."""
    return str(Path(text).resolve())


@dataclass(frozen=True)
class RunOptions:
    """What the user asks for; with the data it determines the run.

    Attributes:
        data: name of a data set, or a path.
        settings: settings of the model and of the training that differ from preset and defaults.
    """

    data: str = "minefield"
    model: str = setting(
        "polyformer",
        "Name of the model; `polyformer models NAME` shows its settings and the values that tune tries. `train` takes "
        "`auto` too, which tries several models and keeps the best.",
    )
    data_root: str | None = setting(
        None, "Folder in which data files are looked for first.", metavar="PATH", parse=absolute_path
    )
    protocol: str | None = setting(None, "How splits are drawn. [default: the paper's way for the data set]")
    split: int = setting(0, "Number of the split of the data set, counted from 0.")
    seed: int = setting(0, "Seed for parameters, batches and dropout.")
    device: str = setting("auto", "Device to compute on: auto, cpu, cuda or mps.")
    preset: str | None = setting(
        None,
        "Settings by name: `fast` holds settings of ours that need a minute or two, `paper` the published settings, "
        "`tuned` settings that tuning found where none are published, `beyond` those of the cascade and of deep "
        "baselines; or a `.csv` file that `polyformer tune` wrote.",
    )
    settings: dict[str, Any] | None = None
    tokens: str | None = setting(
        None,
        "Token directory to train from (`polyformer tokens`); its basis and order are the defaults then.",
        metavar="PATH",
        parse=absolute_path,
    )
    memory: int | None = setting(
        None,
        "Use at most this much memory, e.g. 8GiB; tokens that need more stay on disk. [default: 80 % of free memory]",
        metavar="SIZE",
        parse=parse_bytes,
    )
    start_from: str | None = setting(
        None,
        "Begin with the weights, the settings and the scaling of features of this run.",
        metavar="RUN",
        parse=absolute_path,
    )
