from __future__ import annotations

import pytest

from polyformer.errors import PresetNotFound
from polyformer.models.polyformer import PolyFormerModel, PolyFormerSettings
from polyformer.presets import _table, list_presets, load_preset
from polyformer.settings import split_settings
from polyformer.training.settings import TrainingSettings

ROWS = [(name, *key) for name in list_presets() for key in _table(name)]


@pytest.mark.parametrize(("preset", "dataset", "basis"), ROWS)
def test_every_row_builds_a_model(preset: str, dataset: str, basis: str) -> None:
    """Every column is a setting of the model or of training, with a value that the constructors accept."""
    model, training = split_settings([PolyFormerSettings, TrainingSettings], load_preset(preset, dataset, basis))
    assert PolyFormerModel(in_channels=5, out_channels=3, settings=model).order == model.order
    assert model.self_loops == (basis == "monomial")
    assert training.epochs == 2000 or preset != "paper"


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
    ],
)
def test_what_there_is_not(arguments: tuple, message: str) -> None:
    with pytest.raises(PresetNotFound, match=message):
        load_preset(*arguments)
