"""Settings by name for a data set, a basis and a model: one CSV file a preset.

A file has a row for each data set, basis and model, and a column for each setting; a cell that is empty leaves that
setting alone. Without a column ``model`` it is PolyFormer's. ``polyformer tune`` writes such files.

``paper`` holds the published settings. Where the paper's text and its published results differ, they are those of the
results: the monomial rows set ``self_loops``, full batches, 2,000 epochs with the patience of the row.

``fast`` holds settings that come near the published scores within two minutes on two cores: published ones with fewer
epochs (citeseer, chameleon_filtered), or ours, chosen by validation scores. ``python -m benchmarks.scores`` shows what
they reach.

``tuned`` holds what ``polyformer tune`` found for models, bases and data sets without published settings, by
validation scores. ChebNetII, BernNet, GPRGNN and the MLP on squirrel_filtered: ``tools/tune_baselines.py``, 20 trials
or ten minutes of a core, by the mean of three splits (all trials: ``results/tuned-search/log.csv``). The other
baselines: ``polyformer tune DATASET --model MODEL --trials 40 --budget 3min`` on the first split, 27 to 40 trials.
PolyFormer with Bernstein and optimal tokens, of one layer: in full batches of at most 300 epochs by the mean of three
splits of chameleon_filtered (9 and 13 trials), of two of squirrel_filtered (Bernstein, 19) and by the first of
citeseer (3 and 2); in batches of 256 and 60 epochs by the first of minesweeper (Bernstein, 6). These searches began
with the defaults and the published settings of other bases, and some ended there: with those of Chebyshev tokens for
Bernstein ones on squirrel_filtered, of monomial tokens for Bernstein ones on citeseer and for optimal ones on
chameleon_filtered, and with the defaults, but K = 4, for optimal ones on citeseer.

``beyond`` holds settings of the cascade, chosen by validation scores (all trials: ``results/beyond-search/log.csv``),
and of deep baselines on minesweeper: depth, width, normalisation and rate as published for them, but 800 epochs of a
cosine schedule in place of 2,000 at one rate.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from polyformer.errors import FileCorrupt, InvalidParameter, PresetNotFound
from polyformer.files import read_small, reporting_io_errors, write_whole
from polyformer.registry import parse_value, suggest

__all__ = [
    "check_writable",
    "has_preset",
    "is_preset_file",
    "known_settings",
    "list_presets",
    "load_preset",
    "write_preset",
]

Key = tuple[str, str, str | None]
"""Model, data set and basis; None for a model that has none."""

_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 2000, "shuffle": "batches"},
    "fast": {},
    "tuned": {},
    "beyond": {},
}
"""The package's presets, each with the settings that all rows of its file share."""

_PRESET_MODEL = "polyformer"

_MOST_BYTES = 1 << 24
"""A preset file is a table of settings: 16 MiB are many more than one needs."""

ANY_GRAPH = "*"
"""The data set of a row, in a preset file, that serves every graph."""


@cache
def _table(name: str) -> dict[Key, dict[str, Any]]:
    text = files("polyformer.presets").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return {key: row | _PRESETS[name] for key, row in _parse(text).items()}


def _parse(text: str) -> dict[Key, dict[str, Any]]:
    rows = {}
    for row in csv.DictReader(text.splitlines()):
        key = row.pop("model", None) or _PRESET_MODEL, row.pop("dataset"), row.get("basis") or None
        rows[key] = {column: parse_value(value) for column, value in row.items() if value}
    return rows


def is_preset_file(name: str) -> bool:
    """Whether a preset is named by the path of its file.

    >>> is_preset_file("tuned/best.csv"), is_preset_file("paper")
    (True, False)
    """
    return name.endswith(".csv")


def _read_file(path: Path) -> dict[Key, dict[str, Any]]:
    try:
        return _parse(read_small(path, _MOST_BYTES).decode("utf-8"))
    except FileNotFoundError:
        raise PresetNotFound(f"There is no preset file '{path}'. Check the path.") from None
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise FileCorrupt(
            f"'{path}' cannot be read as a preset ({error}). It must be a CSV file with a column 'dataset' and a "
            f"column for each setting."
        ) from None


def check_writable(path: Path) -> None:
    """Refuse a path that :func:`write_preset` could not write, or :func:`load_preset` not read afterwards."""
    if not is_preset_file(path.name):
        raise InvalidParameter(f"A preset file must end in .csv. Got '{path}'.")
    if path.exists():
        _read_file(path)


def write_preset(path: Path, model: str, dataset: str, settings: Mapping[str, Any]) -> None:
    """Put settings into a preset file, in place of those that it has for the same model, data set and basis.

    Args:
        dataset: a name, or the path of a graph, of which the last part is kept.
    """
    rows = _read_file(path) if path.exists() else {}
    rows[model, _graph_name(dataset), settings.get("basis")] = dict(settings)
    columns = list(dict.fromkeys(["basis", *(name for row in rows.values() for name in row)]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "dataset", *columns])
    for (owner, data, _), row in rows.items():
        writer.writerow([owner, data, *(_word(row[name]) if name in row else "" for name in columns)])
    with reporting_io_errors("a preset", path), write_whole(path) as file:
        file.write(text.getvalue().encode())


def _word(value: Any) -> str:
    """What :func:`parse_value` reads back."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def list_presets() -> list[str]:
    """The names of the package's presets.

    >>> "paper" in list_presets()
    True
    """
    return list(_PRESETS)


def has_preset(name: str, dataset: str, basis: str | None = None, model: str | None = None) -> bool:
    """Whether a preset knows a data set, and if they are named the basis and the model.

    >>> has_preset("fast", "citeseer"), has_preset("fast", "minefield"), has_preset("fast", "citeseer", "optimal")
    (True, False, False)
    """
    return any(
        known == dataset and basis in (None, of_basis) and model in (None, of_model)
        for of_model, known, of_basis in _table(name)
    )


def known_settings(dataset: str, model: str = _PRESET_MODEL) -> list[dict[str, Any]]:
    """What the package's presets hold for a model on a data set, in whatever basis.

    >>> [settings["basis"] for settings in known_settings("roman-empire")]
    ['monomial', 'chebyshev']
    """
    return [dict(row) for name in _PRESETS for key, row in _table(name).items() if key[:2] == (model, dataset)]


def load_preset(name: str, dataset: str, basis: str | None = None, model: str = _PRESET_MODEL) -> dict[str, Any]:
    """The settings of a preset for a data set, and for a basis or else Chebyshev if there is that, or the only one.

    Args:
        name: of a preset of the package, or the path of a ``.csv`` file. A file's row for the data set ``*``, or the
            rows of its only data set, serve every graph that has no row of its own.

    >>> load_preset("paper", "minesweeper", "chebyshev")["order"]
    8
    """
    if is_preset_file(name):
        table = _read_file(Path(name))
    elif name in _PRESETS:
        table = _table(name)
    else:
        raise PresetNotFound(f"Unknown preset '{name}'. {suggest(name, _PRESETS)} A file of your own must end in .csv.")
    models = {m for m, _, _ in table}
    if model not in models:
        raise PresetNotFound(
            f"The preset '{name}' holds settings of {', '.join(sorted(models))}. Got {model}. Leave the preset out."
        )
    row_name = _row_name(name, {d for m, d, _ in table if m == model}, dataset)
    bases = [b for m, d, b in table if (m, d) == (model, row_name)]
    row_basis = basis or ("chebyshev" if "chebyshev" in bases else bases[0])
    if row_basis not in bases:
        raise PresetNotFound(
            f"The preset '{name}' has no settings for '{dataset}' with the basis '{row_basis}'. "
            f"{suggest(str(row_basis), [b for b in bases if b is not None])}"
        )
    return dict(table[model, row_name, row_basis])


def _row_name(preset: str, rows: Collection[str], dataset: str) -> str:
    """The name under which a preset has the rows for a data set: its own name; in a file also ``*``, or the file's only
    name."""
    if dataset in rows:
        return dataset
    if not is_preset_file(preset):
        raise PresetNotFound(f"The preset '{preset}' has no settings for '{dataset}'. {suggest(dataset, rows)}")
    names = {_graph_name(row): row for row in rows}
    if _graph_name(dataset) in names:
        return names[_graph_name(dataset)]
    if ANY_GRAPH in rows:
        return ANY_GRAPH
    if len(rows) == 1:
        return next(iter(rows))
    raise PresetNotFound(
        f"The preset '{preset}' has settings for {', '.join(sorted(names))} and none for '{_graph_name(dataset)}'. "
        f"Write {ANY_GRAPH} into the column 'dataset' of the row that shall serve every graph."
    )


def _graph_name(dataset: str) -> str:
    """A data set's name, or the last part of a path: a graph keeps its settings wherever it is moved.

    >>> _graph_name("/data/shop/"), _graph_name("citeseer")
    ('shop', 'citeseer')
    """
    return dataset if dataset == ANY_GRAPH else Path(dataset).name or dataset
