"""Which run a file belongs to: a hash of what was asked, written into every file of a run directory.

Each file has a hash of its own, which fits wherever the file is. The hash of the run tells that a model, a result or
labels were put into the directory of another run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyformer.errors import FileCorrupt
from polyformer.files.json_files import read_json
from polyformer.files.run_names import CONFIG
from polyformer.files.run_schemas import ANY_CONFIG

__all__ = ["RUN", "check_identity", "run_identity"]

RUN = "run"
"""The name under which files carry the identity of their run."""

_ASKED = ("card", "model", "settings", "seed", "split", "protocol", "task", "classes")


def run_identity(folder: Path) -> str:
    """A hash of what ``config.json`` says of model, settings, seed, split and data.

    Places and sizes that differ from machine to machine are left out, and so is the number of epochs: training that is
    stopped may count as whole.
    """
    config = read_json(folder / CONFIG, ANY_CONFIG)
    text = json.dumps(_without_epochs({name: config[name] for name in _ASKED if name in config}), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _without_epochs(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_epochs(value) if isinstance(value, Mapping) else value
        for name, value in content.items()
        if name != "epochs"
    }


def check_identity(path: Path, about: Mapping[str, Any], folder: Path | None = None) -> None:
    """Refuse a file of a run directory that was written for another run; earlier versions wrote no identity.

    Args:
        path: the file.
        about: what stands in the file.
        folder: the run directory; by default the folder of the file.
    """
    place = path.parent if folder is None else folder
    if RUN in about and about[RUN] != run_identity(place):
        raise FileCorrupt(
            f"'{path}' and '{place / CONFIG}' come from different runs, or the configuration has been changed. "
            f"Put the files of one run together again."
        )
