from __future__ import annotations

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
    """Rows of several models and bases live in one file; what is written is read back as it was."""
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


def test_a_preset_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutOfResources, match=r"Could not write a preset to '.*file/mine\.csv'"):
        write_preset(tmp_path / "file" / "mine.csv", "gcn", "cs", {"dropout": 0.5})
