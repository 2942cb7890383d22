"""Every plan of the package fits the constructors, the data sets and the published tables."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from polyformer.datasets import DATASETS
from polyformer.errors import DataNotFound, FileCorrupt, InvalidParameter, UnknownName
from polyformer.experiments import EXPERIMENTS
from polyformer.experiments.costs import estimate_seconds
from polyformer.experiments.plan import Plan, load_plan, open_experiment, open_experiments, select
from polyformer.experiments.published import published_scores
from polyformer.models import MODELS
from polyformer.presets import load_preset
from polyformer.registry import parse_spec
from polyformer.settings import split_settings
from polyformer.training.settings import TrainingSettings

PLANS = sorted(path.name[: -len(".toml")] for path in files("polyformer.experiments").joinpath("plans").iterdir())
FITS_OF_IMAGES = {plan for name in ("table2", "table7", "table2-images", "fig2") for plan in EXPERIMENTS[name].plans}

OWN = """
note = "a test"
datasets = ["minefield:width=20,height=15"]
runs = 3
splits = 2
[settings]
order = 3
[models.polyattn]
hidden_channels = 16
[models.mlp]
"""


def test_every_plan_belongs_to_an_experiment() -> None:
    assert sorted({plan for name in EXPERIMENTS for plan in EXPERIMENTS[name].plans}) == PLANS


@pytest.mark.parametrize("plan", PLANS)
def test_every_series_builds_a_model(plan: str) -> None:
    for series in load_plan(plan).series():
        job = series.jobs()[-1]
        settings = job.request.resolve_settings()
        kind = MODELS[series.model]
        model, training = split_settings([kind.settings_type, TrainingSettings], settings)
        assert kind(in_channels=5, out_channels=3, settings=model).out_channels == 3
        assert training.epochs >= 1
        dataset = DATASETS[parse_spec(job.request.data)[0]]
        assert dataset.choose_protocol(job.request.protocol) in dataset.protocols
        assert job.request.split < series.splits
        assert estimate_seconds(job) > 0
        assert settings.get("basis") == (series.basis or settings.get("basis"))
        assert "/" not in job.key


@pytest.mark.parametrize("experiment", [name for name in EXPERIMENTS if EXPERIMENTS[name].published])
def test_every_published_entry_is_planned_once(experiment: str) -> None:
    found, series = open_experiment(experiment)
    planned = [(entry.model, entry.basis, entry.dataset) for entry in series]
    assert len(planned) == len(set(planned))
    published = {(e.model, e.basis, e.dataset) for e in published_scores(table=found.published)}
    assert set(planned) >= published
    assert set(planned) == published or experiment == "models"


@pytest.mark.parametrize("plan", sorted(FITS_OF_IMAGES))
def test_synthetic_models_have_5k_parameters(plan: str) -> None:
    for series in load_plan(plan).series():
        kind, settings = MODELS[series.model], series.jobs()[0].request.resolve_settings()
        model = kind(1, 1, split_settings([kind.settings_type, TrainingSettings], settings)[0])
        assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(5000, rel=0.06), series.key


def test_fits_are_of_the_published_image_or_of_one_image_a_run() -> None:
    for plan, images in (("synthetic-selfattn", (15, 15)), ("synthetic-images-attention", (0, 1))):
        [series] = select(load_plan(plan).series(), ["mixed-band-pass"], ["selfattn"], ["optimal"])
        requests = [job.request for job in series.jobs(2)]
        assert [request.data for request in requests] == [f"2Dgrid:image={image},filter=band" for image in images]
        assert [(request.split, request.seed) for request in requests] == [(0, 0), (0, 1)]


def test_runs_take_splits_in_turn_and_seeds_of_their_own() -> None:
    [first, second] = Plan.parse("own", OWN).series()
    assert [(job.request.split, job.request.seed) for job in first.jobs()] == [(0, 0), (1, 1), (0, 2)]
    assert (first.label, second.label) == ("polyattn", "mlp")
    assert first.settings == {"order": 3, "hidden_channels": 16}
    assert len(second.jobs(5)) == 5
    assert len({job.key for entry in (first, second) for job in entry.jobs()}) == 6


def test_tuned_settings_are_taken_where_there_are_some() -> None:
    series = {entry.dataset: entry for entry in select(load_plan("table5-baselines").series(), models=["chebnetii"])}
    tuned, plain = series["chameleon_filtered"], series["physics"]
    assert (tuned.preset, plain.preset) == ("tuned", None)
    assert "polyformer tune" in tuned.note
    assert "default settings" in plain.note
    assert tuned.jobs()[0].request.asked_settings() == load_preset("tuned", "chameleon_filtered", model="chebnetii")


def test_a_plan_that_changes_is_run_again() -> None:
    before, after = (Plan.parse("own", text).series()[0] for text in (OWN, OWN.replace("order = 3", "order = 4")))
    assert before.jobs()[0].key != after.jobs()[0].key
    noted = Plan.parse("own", OWN.replace("a test", "another note")).series()[0]
    assert noted.jobs()[0].key == before.jobs()[0].key
    changed = before.changed({"order": 4})
    assert (changed.note, changed.jobs()[0].key) == ("a test; changed: order=4", after.jobs()[0].key)
    assert before.changed({}) is before


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (("runs = 3", "rnus = 3"), UnknownName, "unknown entry 'rnus'. Did you mean 'runs'?"),
        (("runs = 3\n", ""), InvalidParameter, "must say 'runs'"),
        (("runs = 3", "runs = "), FileCorrupt, "is not TOML"),
        (
            ("runs = 3", "runs = -1"),
            InvalidParameter,
            "'runs' of the plan 'own' must be a whole number, 1 or more. Got -1",
        ),
        (("runs = 3", 'runs = "two"'), InvalidParameter, "'runs' of the plan 'own' must be a whole number"),
        (
            ("runs = 3", "runs = 3\nuse_tuned_preset = 1"),
            InvalidParameter,
            "'use_tuned_preset' of the plan 'own' must be true or false",
        ),
        (("runs = 3", "runs = 3\nsources = 1"), InvalidParameter, "must be a table .sources."),
        (
            ("[settings]", "[sources]\nminefield = 1\n[settings]"),
            InvalidParameter,
            "a text for each data set. Got .'mine",
        ),
        (
            ("[settings]", "[sources]\nx = '2Dgrid:image={runs}'\n[settings]"),
            InvalidParameter,
            "Got '2Dgrid:image={runs}'",
        ),
        (
            ("[settings]", "[sources]\nx = '2Dgrid:image={'\n[settings]"),
            InvalidParameter,
            "no braces but those of {run}",
        ),
        (("minefield:", "graph{0}/minefield:"), InvalidParameter, "no braces but those of {run}. Got 'graph"),
        (
            ("[settings]", "[stand_ins]\nx = 1\n[settings]"),
            InvalidParameter,
            "a table .stand_ins. with a text for each",
        ),
        (("runs = 3", "runs = 3\npreset = 1"), InvalidParameter, "'preset' of the plan 'own' must be a text"),
        (
            ("runs = 3", "runs = 3\nbases = ['optimal']"),
            InvalidParameter,
            "a table for each, such as .bases.chebyshev.",
        ),
    ],
)
def test_plans_that_do_not_read(change: tuple[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.replace("?", r"\?")):
        Plan.parse("own", OWN.replace(*change))


def test_selection() -> None:
    series = load_plan("table5-baselines").series()
    chosen = select(series, ["cs", "physics"], ["gcn"])
    assert [(entry.dataset, entry.model) for entry in chosen] == [("cs", "gcn"), ("physics", "gcn")]
    with pytest.raises(UnknownName, match=r"no model 'gnc' among what was asked for\. Did you mean 'gcn'"):
        select(series, models=["gnc"])
    with pytest.raises(UnknownName, match="Unknown experiment 'table9'"):
        open_experiment("table9")
    with pytest.raises(DataNotFound, match=r"There is no plan 'nowhere\.toml'"):
        open_experiment("nowhere.toml")


def own_plan(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(OWN)
    return str(folder / name)


def test_plans_of_the_same_name_do_not_share_records(tmp_path: Path) -> None:
    one, other = (own_plan(tmp_path / folder, "mine.toml") for folder in "ab")
    with pytest.raises(InvalidParameter, match=r"Got '.*a/mine\.toml' and '.*b/mine\.toml'\. Rename one"):
        open_experiments([one, "table4", other])
    assert len(open_experiments([one, one, own_plan(tmp_path, "yours.toml")])) == 3


@pytest.mark.parametrize("name", ["table4.toml", "table5-baselines.toml"])
def test_a_plan_of_ones_own_has_a_name_of_its_own(name: str, tmp_path: Path) -> None:
    path = own_plan(tmp_path, name)
    with pytest.raises(InvalidParameter, match=rf"named like one of the package\. Got '.*{name}'\. Rename the file\."):
        open_experiment(path)
