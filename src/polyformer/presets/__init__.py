"""Settings by name for a data set and basis: one CSV file a preset.

``paper`` holds the published settings. Where the paper's text and its published results differ, they are those of the
results: the monomial rows set ``self_loops``, full batches, 2,000 epochs with the patience of the row.

``fast`` holds settings of ours that come near the published scores within two minutes on two cores; they were chosen by
validation scores. ``python -m benchmarks.scores`` shows what they reach.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import Any

from polyformer.errors import PresetNotFound
from polyformer.registry import parse_value, suggest

__all__ = ["has_preset", "list_presets", "load_preset"]

_SHARED: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 2000, "shuffle": "batches"},
    "fast": {},
}

_PRESET_MODEL = "polyformer"


@cache
def _table(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    text = files("polyformer.presets").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    rows = {}
    for row in csv.DictReader(text.splitlines()):
        key = row.pop("dataset"), row["basis"]
        rows[key] = {column: parse_value(value) for column, value in row.items()} | _SHARED[name]
    return rows


def list_presets() -> list[str]:
    """The names of the presets that exist.

    >>> list_presets()
    ['paper', 'fast']
    """
    return list(_SHARED)


def has_preset(name: str, dataset: str) -> bool:
    """Whether a preset knows a data set.

    >>> has_preset("fast", "citeseer"), has_preset("fast", "minefield")
    (True, False)
    """
    return any(known == dataset for known, _ in _table(name))


def load_preset(name: str, dataset: str, basis: str | None = None, model: str = _PRESET_MODEL) -> dict[str, Any]:
    """The settings of a preset for a data set, and for a basis or else Chebyshev if there is that, or the only one.

    >>> load_preset("paper", "minesweeper", "chebyshev")["order"]
    8
    """
    if name not in _SHARED:
        raise PresetNotFound(f"Unknown preset '{name}'. {suggest(name, _SHARED)}")
    if model != _PRESET_MODEL:
        raise PresetNotFound(
            f"The preset '{name}' holds settings of {_PRESET_MODEL}. Got {model}. Leave the preset out."
        )
    table = _table(name)
    bases = [b for d, b in table if d == dataset]
    if not bases:
        sets = sorted({d for d, _ in table})
        raise PresetNotFound(f"The preset '{name}' has no settings for '{dataset}'. {suggest(dataset, sets)}")
    chosen = basis or ("chebyshev" if "chebyshev" in bases else bases[0])
    if chosen not in bases:
        raise PresetNotFound(
            f"The preset '{name}' has no settings for '{dataset}' with the basis '{chosen}'. {suggest(chosen, bases)}"
        )
    return dict(table[dataset, chosen])
