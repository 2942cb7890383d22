"""Plans: the runs behind some rows of a table, as data. Each plan is a TOML file in ``plans/``.

A plan combines each of its models with each basis and data set. ``[settings]`` hold for all combinations, the settings
under ``[models.NAME]`` and ``[bases.NAME]`` for that model or basis. Run i takes split ``i mod splits`` and seed i.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter, UnknownName
from polyformer.experiments import EXPERIMENTS, Experiment
from polyformer.files import read_small
from polyformer.presets import has_preset
from polyformer.registry import suggest

if TYPE_CHECKING:
    from polyformer.runs.request import RunRequest

__all__ = ["Job", "Plan", "Series", "load_plan", "open_experiment", "open_experiments", "select"]

_MOST_PLAN_BYTES = 1 << 20

_TUNED_NOTE = "settings that polyformer tune found (preset tuned), as none are published"


@dataclass(frozen=True)
class Series:
    """Runs that differ by split and seed only: one number of a table.

    Attributes:
        basis: name of the basis; None if the plan names none.
        dataset: name of the data set in the table.
        source: the data to train on; ``{run}`` in it stands for the number of the run.
        settings: settings that differ from the preset and the defaults.
        keep_model: whether the model of a run is kept beside its record.
        from_scratch: whether a run computes again what an earlier run has cached, such as eigenvectors.
        stands_for: the data set of the paper that this one replaces.
    """

    plan: str
    model: str
    basis: str | None
    dataset: str
    source: str
    preset: str | None
    protocol: str | None
    settings: dict[str, Any]
    runs: int
    splits: int
    note: str
    keep_model: bool = False
    from_scratch: bool = False
    stands_for: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What tells the series from every other series."""
        return self.plan, self.model, self.basis or "", self.dataset

    @property
    def label(self) -> str:
        """The model as the paper's tables write it: with its basis in brackets."""
        return self.model if self.basis is None else f"{self.model} ({self.basis})"

    def changed(self, settings: Mapping[str, Any]) -> Series:
        """The same series with other settings, which its note names."""
        if not settings:
            return self
        if "basis" in settings:
            raise InvalidParameter(
                f"'basis' is what the rows of a plan differ by. Got basis={settings['basis']}. Choose with --bases."
            )
        words = ", ".join(f"{name}={value}" for name, value in settings.items())
        return replace(self, settings={**self.settings, **settings}, note=f"{self.note}; changed: {words}")

    def check(self) -> None:
        """Refuse a model, a setting or a basis that does not exist, before anything is run."""
        from polyformer.bases import resolve_basis

        basis = self.jobs(1)[0].request.resolve_settings().get("basis")
        if isinstance(basis, str):
            resolve_basis(basis)

    def jobs(self, runs: int | None = None) -> list[Job]:
        """The first ``runs`` runs of the series; by default all planned runs."""
        return [Job(self, run) for run in range(self.runs if runs is None else runs)]


@dataclass(frozen=True)
class Job:
    """One run of a series."""

    series: Series
    run: int

    @property
    def request(self) -> RunRequest:
        """The request for the training."""
        from polyformer.runs.request import RunRequest

        series = self.series
        return RunRequest(
            data=series.source.format(run=self.run),
            model=series.model,
            protocol=series.protocol,
            split=self.run % series.splits,
            seed=self.run,
            preset=series.preset,
            settings=series.settings,
        )

    @property
    def key(self) -> str:
        """A name made from the whole request, so that a run is made again if its plan changes.

        Defaults do not count: a setting that a later version adds changes no name.
        """
        request, series = self.request, self.series
        content = json.dumps([request.data, request.protocol, request.asked_settings()], sort_keys=True)
        digest = hashlib.blake2b(content.encode(), digest_size=4).hexdigest()
        parts = [series.model, series.basis, series.dataset, f"split{request.split}", f"seed{request.seed}", digest]
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(part for part in parts if part is not None))


@dataclass(frozen=True)
class Plan:
    """The content of a TOML file; see the module.

    Attributes:
        note: who chose these settings; shown beside the numbers.
        use_tuned_preset: take the preset ``tuned`` for the rows that it knows; their note says so.
        runs: number of runs over which the paper averages.
        splits: number of different splits.
        sources: for data sets of a table that are generated here, the data to train on.
        keep_model: keep the model of every run beside its record, for figures of what it learned.
        from_scratch: compute again what an earlier run has cached, so that times are complete.
        stand_ins: data sets that replace data sets of the paper, with the names of the latter.
    """

    name: str
    note: str
    datasets: tuple[str, ...]
    runs: int
    splits: int
    models: Mapping[str, dict[str, Any]]
    bases: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    preset: str | None = None
    use_tuned_preset: bool = False
    protocol: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    keep_model: bool = False
    from_scratch: bool = False
    stand_ins: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, text: str) -> Plan:
        """Read a plan from the text of a TOML file."""
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileCorrupt(f"The plan '{name}' is not TOML ({error}). Correct it.") from None
        known = {entry.name for entry in fields(cls)} - {"name"}
        for key in content:
            if key not in known:
                raise UnknownName(f"The plan '{name}' has an unknown entry '{key}'. {suggest(key, known)}")
        for key in ("note", "datasets", "runs", "splits", "models"):
            if not content.get(key):
                raise InvalidParameter(f"The plan '{name}' must say '{key}'. Got nothing. Add it.")
        for key, value in content.items():
            _check_entry(name, key, value)
        for source in (*content["datasets"], *content.get("sources", {}).values()):
            _check_source(name, source)
        return cls(name, **content | {"datasets": tuple(content["datasets"])})

    def series(self) -> list[Series]:
        """Every combination of data set, model and basis."""
        return [
            self._series(dataset, model, basis)
            for dataset in self.datasets
            for model in self.models
            for basis in (self.bases or (None,))
        ]

    def _series(self, dataset: str, model: str, basis: str | None) -> Series:
        of_basis = {} if basis is None else {"basis": basis, **self.bases[basis]}
        has_searched = self.use_tuned_preset and has_preset("tuned", dataset, basis, model)
        return Series(
            self.name,
            model,
            basis,
            dataset,
            self.sources.get(dataset, dataset),
            "tuned" if has_searched else self.preset,
            self.protocol,
            {**self.settings, **self.models[model], **of_basis},
            self.runs,
            self.splits,
            _TUNED_NOTE if has_searched else self.note,
            self.keep_model,
            self.from_scratch,
            self.stand_ins.get(dataset),
        )


_TABLES_OF_TABLES, _TABLES_OF_TEXTS = ("models", "bases"), ("sources", "stand_ins")


def _check_entry(plan: str, key: str, value: Any) -> None:
    """Refuse an entry of a plan that has the wrong type."""
    if key in ("runs", "splits"):
        good, kind = isinstance(value, int) and value >= 1, "a whole number, 1 or more"
    elif key == "datasets":
        good, kind = isinstance(value, list) and all(isinstance(part, str) for part in value), "a list of names"
    elif key in _TABLES_OF_TABLES:
        good = isinstance(value, dict) and all(isinstance(part, dict) for part in value.values())
        kind = f"a table for each, such as [{key}.{'gcn' if key == 'models' else 'chebyshev'}]"
    elif key == "settings":
        good, kind = isinstance(value, dict), "a table [settings]"
    elif key in _TABLES_OF_TEXTS:
        good = isinstance(value, dict) and all(isinstance(part, str) for part in value.values())
        kind = f"a table [{key}] with a text for each data set"
    elif key in ("use_tuned_preset", "keep_model", "from_scratch"):
        good, kind = isinstance(value, bool), "true or false"
    else:
        good, kind = isinstance(value, str), "a text"
    if not good:
        raise InvalidParameter(f"'{key}' of the plan '{plan}' must be {kind}. Got {value!r}.")


def _check_source(plan: str, source: str) -> None:
    """Refuse braces around anything but the number of the run."""
    try:
        source.format(run=0)
    except (LookupError, ValueError, AttributeError, TypeError):
        raise InvalidParameter(
            f"A data set of the plan '{plan}' must have no braces but those of {{run}}. Got '{source}'. "
            f"Write {{{{ and }}}} for others."
        ) from None


def load_plan(name: str) -> Plan:
    """A plan that comes with the package.

    >>> load_plan("table5-polyformer-paper").preset
    'paper'
    """
    return Plan.parse(name, files("polyformer.experiments").joinpath("plans", f"{name}.toml").read_text("utf-8"))


def open_experiment(name: str) -> tuple[Experiment, list[Series]]:
    """An experiment of the paper by name, or a plan of your own by the path of its ``.toml`` file.

    >>> experiment, series = open_experiment("table4")
    >>> len(series)
    32
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise DataNotFound(f"There is no plan '{name}'. Check the path.")
        _refuse_shipped_name(path)
        try:
            text = read_small(path, _MOST_PLAN_BYTES).decode("utf-8")
        except (OSError, ValueError) as error:
            raise FileCorrupt(f"The plan '{name}' cannot be read as text ({error}). Correct it.") from None
        plan = Plan.parse(path.stem, text)
        return Experiment(path.stem, plan.note, (plan.name,)), plan.series()
    experiment = EXPERIMENTS[name]
    return experiment, [series for plan in experiment.plans for series in load_plan(plan).series()]


def _refuse_shipped_name(path: Path) -> None:
    """Refuse a plan of your own that has the name of a shipped plan: their records and remarks would be mixed up."""
    if any(path.stem in EXPERIMENTS[name].plans for name in EXPERIMENTS):
        raise InvalidParameter(
            f"A plan of your own must not be named like one of the package. Got '{path}'. Rename the file."
        )


def open_experiments(names: Iterable[str]) -> list[tuple[Experiment, list[Series]]]:
    """Open several experiments as :func:`open_experiment` does; refuses two plans of your own with the same name."""
    all_names = list(names)
    own: dict[str, Path] = {}
    for path in (Path(name) for name in all_names if name.endswith(".toml")):
        other = own.setdefault(path.stem, path)
        if other.resolve() != path.resolve():
            raise InvalidParameter(
                f"Plans must have names of their own, as their records go by them. Got '{other}' and '{path}'. "
                f"Rename one of the files."
            )
    return [open_experiment(name) for name in all_names]


def select(
    series: Iterable[Series], datasets: Collection[str] = (), models: Collection[str] = (), bases: Collection[str] = ()
) -> list[Series]:
    """The series of the named data sets, models and bases; an option without names selects all."""
    selected_series = list(series)
    for option, names in (("dataset", datasets), ("model", models), ("basis", bases)):
        planned = {getattr(entry, option) for entry in selected_series} - {None}
        if names and not planned:
            raise InvalidParameter(
                f"None of the models asked for has a {option}. Got {option} '{', '.join(names)}'. "
                f"Choose other models, or no {option}."
            )
        for name in names:
            if name not in planned:
                raise UnknownName(
                    f"The plan has no {option} '{name}' among what was asked for. {suggest(name, planned)}"
                )
        if names:
            selected_series = [entry for entry in selected_series if getattr(entry, option) in names]
    return selected_series
