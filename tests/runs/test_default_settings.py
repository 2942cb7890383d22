"""Defaults that follow the number of training nodes: which run gets them, and what goes before them."""

from pathlib import Path

import numpy as np
import pytest

import polyformer as pf
from polyformer.models import MODELS
from polyformer.runs.default_settings import FEW_LABELS, defaults_for
from polyformer.runs.request import RunRequest
from polyformer.settings import split_settings
from polyformer.training.settings import TrainingSettings
from polyformer.tuning.space import search_space, with_unsearched_defaults
from tests.listener import Listener

FEW = MODELS["polyformer"].few_label_defaults


def ring(count: int) -> tuple[pf.Graph, np.ndarray]:
    edges = np.stack([np.arange(count), (np.arange(count) + 1) % count])
    return pf.Graph(edges, features=np.eye(count)[:, :4]), np.arange(count) * 2 // count


@pytest.mark.parametrize("model", MODELS)
def test_defaults_for_few_labels_are_settings_of_the_model(model: str) -> None:
    kind = MODELS[model]
    split_settings([kind.settings_type, TrainingSettings], defaults_for(kind, 1))


def test_few_training_nodes_change_the_defaults_and_one_more_does_not() -> None:
    few, many = (RunRequest().resolve_settings(count) for count in (FEW_LABELS, FEW_LABELS + 1))
    assert {name: few[name] for name in FEW} == FEW
    assert many == RunRequest().resolve_settings()
    assert {name for name in few if few[name] != many[name]} == set(FEW)


def test_what_is_asked_for_goes_before_the_defaults_for_few_labels() -> None:
    request = RunRequest(settings={"order": 7, "basis": "chebyshev"})
    resolved = request.resolve_settings(10)
    assert (resolved["order"], resolved["basis"], resolved["lr"]) == (7, "chebyshev", FEW["lr"])
    assert request.few_label_defaults(10).keys() == FEW.keys() - {"order", "basis"}


def test_a_preset_is_not_mixed_with_the_defaults_for_few_labels() -> None:
    request = RunRequest("citeseer", preset="paper", settings={"basis": "monomial"})
    assert request.resolve_settings(10) == request.resolve_settings()
    assert request.few_label_defaults(10) == {}


def test_a_run_with_few_labels_says_and_keeps_its_defaults(tmp_path: Path) -> None:
    graph, labels = ring(60)
    said: list[str] = []
    run = pf.train(graph, out=tmp_path / "run", labels=labels, epochs=1, reporter=Listener(on_say=said.append))
    assert {name: run.card.settings[name] for name in FEW} == FEW
    assert any(text.startswith("36 training nodes are few, so the defaults are basis=monomial") for text in said)


def test_an_estimator_with_few_labels_has_the_same_defaults() -> None:
    class Halves(pf.Jacobi):
        """A basis of the user's own, which is kept as its mixing matrix of the order in use."""

        name = "halves"

    graph, labels = ring(60)
    clf = pf.PolyFormerClassifier(epochs=1).fit(graph, labels)
    assert clf.filter_response([0], np.array([0.0])).shape == (1, 8, 1)
    assert clf._trained.card.settings["order"] == FEW["order"]
    own = pf.PolyFormerClassifier(epochs=1, basis=Halves(a=1, b=1)).fit(graph, labels)
    assert np.shape(own._trained.card.settings["basis"]["mixing"]) == (FEW["order"] + 1, FEW["order"] + 1)


def test_a_search_fixes_the_defaults_that_it_does_not_search() -> None:
    request = RunRequest(settings={"epochs": 5})
    space = search_space(request, 100, 4)
    fixed = with_unsearched_defaults(request, space, 100)
    assert fixed.settings == {"epochs": 5, "basis": FEW["basis"], "patience": FEW["patience"]}
    assert with_unsearched_defaults(request, space, FEW_LABELS + 1) == request
