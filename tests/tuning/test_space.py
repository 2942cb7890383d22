from __future__ import annotations

import pytest

from polyformer.errors import InvalidParameter
from polyformer.models import MODELS
from polyformer.runs.request import RunRequest
from polyformer.tuning.space import LARGE_TRAINING_SET, first_guesses, search_space


def test_batch_size_joins_the_models_space() -> None:
    space = search_space(RunRequest(), 1000, 7)
    assert dict(space, batch_size=()) == dict(MODELS["polyformer"].search_space, batch_size=())
    assert space["batch_size"] == (128, 256, 512, 1024, "full")
    assert search_space(RunRequest(), 1000, 3703)["batch_size"] == ("auto", "full")
    assert "batch_size" not in search_space(RunRequest(model="gcn"), 1000, 7)


def test_large_graphs_have_the_papers_third_space() -> None:
    large = search_space(RunRequest(), LARGE_TRAINING_SET + 1, 128)
    assert large["batch_size"] == (10_000, 20_000, 50_000)
    assert large["hidden_channels"] == (128, 512, 1024)
    assert search_space(RunRequest(model="mlp"), LARGE_TRAINING_SET + 1, 128)["lr"] == MODELS["mlp"].search_space["lr"]


def test_what_is_fixed_is_not_searched() -> None:
    assert "order" not in search_space(RunRequest(settings={"order": 3}), 1000, 7)
    with pytest.raises(InvalidParameter, match="Nothing is left to search"):
        search_space(RunRequest(data="citeseer", preset="fast"), 1000, 7)


def test_the_defaults_and_the_presets_of_the_data_are_tried_first() -> None:
    request = RunRequest(data="roman-empire", settings={"basis": "bernstein", "hidden_channels": 64})
    space = search_space(request, 1000, 300)
    defaults, few_labels, monomial, chebyshev = first_guesses(request, space)
    settled = {"ffn_channels": 64, "attention_lr": 0.001, "attention_weight_decay": 0.0, "batch_size": 256}
    assert defaults == {name: (request.resolve_settings() | settled)[name] for name in space}
    assert (few_labels["order"], few_labels["lr"]) == (4, 0.005)
    assert (monomial["order"], chebyshev["order"]) == (14, 2)
    for guess in (defaults, few_labels, monomial, chebyshev):
        assert set(guess) <= set(space), "what is fixed is not guessed"
        assert all(value in space[name] for name, value in guess.items())


def test_guesses_are_not_repeated_and_not_empty() -> None:
    assert len(first_guesses(RunRequest(), {"lr": [RunRequest().resolve_settings()["lr"]]})) == 1
    assert first_guesses(RunRequest(), {"lr": [123.0]}) == []
