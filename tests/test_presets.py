from __future__ import annotations

import os
from pathlib import Path

import pytest

from polyformer.errors import FileCorrupt, OutOfResources, PresetNotFound
from polyformer.models import MODELS
from polyformer.presets import _table, list_presets, load_preset, write_preset
from polyformer.settings import split_settings
from polyformer.training.settings import TrainingSettings

ROWS = [(name, *key) for name in list_presets() for key in _table(name)]


@pytest.mark.parametrize(("preset", "model", "dataset", "basis"), ROWS)
def test_every_row_builds_a_model(preset: str, model: str, dataset: str, basis: str | None) -> None:
    """Every column is a setting of the model or of training, with a value that the constructors accept."""
    kind = MODELS[model]
    settings, training = split_settings(
        [kind.settings_type, TrainingSettings], {**kind.training_defaults, **load_preset(preset, dataset, basis, model)}
    )
    assert kind(in_channels=5, out_channels=3, settings=settings).out_channels == 3
    assert training.epochs == 2000 or preset != "paper"
    if preset in ("paper", "fast"):
        assert settings.self_loops == (basis == "monomial")


def test_published_values() -> None:
    row = load_preset("paper", "chameleon_filtered", "chebyshev")
    assert (row["order"], row["heads"], row["dropout"], row["attention_dropout"]) == (2, 16, 0.6, 0.9)
    assert (row["lr"], row["attention_lr"], row["patience"], row["batch_size"]) == (0.01, 0.005, 30, "full")
    assert load_preset("paper", "pokec")["batch_size"] == 20000
    assert load_preset("paper", "citeseer")["basis"] == "chebyshev"
    assert load_preset("paper", "pokec")["basis"] == "monomial"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("paper", "cora"), "has no settings for 'cora'.*There are: .*citeseer"),
        (("paper", "pokec", "chebyshev"), r"with the basis 'chebyshev'\. There are: monomial"),
        (("papr", "cs"), "Did you mean 'paper'"),
        (("paper", "cs", None, "gcn"), "holds settings of polyformer. Got gcn. Leave the preset out"),
        (("nowhere.csv", "cs"), r"There is no preset file 'nowhere\.csv'"),
    ],
)
def test_what_there_is_not(arguments: tuple, message: str) -> None:
    with pytest.raises(PresetNotFound, match=message):
        load_preset(*arguments)


def test_files_of_ones_own(tmp_path: Path) -> None:
    """One file holds rows of several models and bases; reading gives back what was written."""
    path = tmp_path / "deep" / "best.csv"
    first = {"basis": "optimal", "order": 4, "lr": 5e-5, "self_loops": False, "ffn_channels": None}
    write_preset(path, "polyformer", "cs", first)
    write_preset(path, "gcn", "cs", {"dropout": 0.5, "batch_size": "full"})
    write_preset(path, "polyformer", "cs", first | {"order": 6})
    assert load_preset(str(path), "cs", "optimal") == first | {"order": 6}
    assert load_preset(str(path), "cs", model="gcn") == {"dropout": 0.5, "batch_size": "full"}
    with pytest.raises(PresetNotFound, match="with the basis 'chebyshev'"):
        load_preset(str(path), "cs", "chebyshev")
    path.write_text("no,columns\n1,2\n")
    with pytest.raises(FileCorrupt, match="cannot be read as a preset"):
        load_preset(str(path), "cs")


@pytest.mark.parametrize(
    ("rows", "graph", "order"),
    [
        (["/old/place/shop"], "/new/place/shop", 1),  # the graph moved
        (["/old/place/shop"], "/other/graph", 1),  # the only row serves every graph
        (["citeseer"], "/other/graph", 1),
        (["/a/shop", "/b/school"], "/c/school", 2),
        (["/a/shop", "*"], "/c/club", 2),
        (["/a/shop", "*"], "/c/shop", 1),  # a row of its own goes before *
    ],
)
def test_a_preset_file_serves_any_graph(tmp_path: Path, rows: list[str], graph: str, order: int) -> None:
    path = tmp_path / "best.csv"
    for number, row in enumerate(rows, start=1):
        write_preset(path, "polyformer", row, {"basis": "chebyshev", "order": number})
    assert "/" not in path.read_text(), "no row is tied to a place"
    assert load_preset(str(path), graph)["order"] == order


def test_a_file_of_an_earlier_version_with_a_whole_path_serves_any_graph(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("model,dataset,basis,order\npolyformer,/home/ann/shop,chebyshev,5\n")
    for graph in ("/home/ann/shop", "/home/bob/shop", "/data/club"):
        assert load_preset(str(tmp_path / "old.csv"), graph)["order"] == 5


def test_several_rows_of_which_none_fits_are_not_guessed_from(tmp_path: Path) -> None:
    for name in ("shop", "school"):
        write_preset(tmp_path / "best.csv", "polyformer", name, {"basis": "chebyshev", "order": 4})
    with pytest.raises(
        PresetNotFound, match=r"settings for school, shop and none for 'club'\. Write \* into the column"
    ):
        load_preset(str(tmp_path / "best.csv"), "/data/club")


def test_a_row_of_the_package_does_not_serve_a_graph_with_the_same_name() -> None:
    with pytest.raises(PresetNotFound, match="has no settings for '/mine/citeseer'"):
        load_preset("paper", "/mine/citeseer")


def test_a_preset_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutOfResources, match=r"Could not write a preset to '.*file/mine\.csv'"):
        write_preset(tmp_path / "file" / "mine.csv", "gcn", "cs", {"dropout": 0.5})


def test_a_pipe_in_the_place_of_a_preset_is_refused(tmp_path: Path) -> None:
    """A pipe would wait for a writer for ever."""
    pipe = tmp_path / "preset.csv"
    os.mkfifo(pipe)
    with pytest.raises(FileCorrupt, match="cannot be read as a preset"):
        load_preset(str(pipe), "minefield", None, "polyformer")
