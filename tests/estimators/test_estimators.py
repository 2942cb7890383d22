from __future__ import annotations

import json
from dataclasses import fields
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

import polyformer as pf
from polyformer.datasets import load_dataset
from polyformer.errors import DataNotFound, FileCorrupt, InvalidData, InvalidParameter
from polyformer.models.polyformer import PolyFormerSettings
from polyformer.presets import load_preset
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.training.settings import TrainingSettings

BOARD = "minefield:width=20,height=15"
TASK = load_dataset(BOARD)
FAST = {"order": 3, "hidden_channels": 16, "heads": 4, "num_layers": 2, "epochs": 3}


@pytest.fixture(scope="module", params=["chebyshev", "optimal"])
def fitted(request: pytest.FixtureRequest) -> pf.PolyFormerClassifier:
    clf = pf.PolyFormerClassifier(basis=request.param, **FAST)
    return clf.fit(TASK.graph, TASK.labels, train=TASK.splits[0].train, val=TASK.splits[0].val)


def test_predictions(fitted: pf.PolyFormerClassifier) -> None:
    probabilities = fitted.predict_proba(TASK.graph)
    assert probabilities.shape == (300, 2)
    assert np.allclose(probabilities.sum(axis=1), 1)
    predicted = fitted.predict(TASK.graph)
    assert np.array_equal(predicted, probabilities.argmax(axis=1))
    assert predicted.dtype == np.int64


def test_save_and_load_give_bit_equal_predictions(fitted: pf.PolyFormerClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "clf")
    loaded = pf.PolyFormerClassifier.load(tmp_path / "clf")
    assert np.array_equal(loaded.predict_proba(TASK.graph), fitted.predict_proba(TASK.graph))
    assert not any(path.suffix in (".pt", ".pkl") for path in (tmp_path / "clf").iterdir())


def test_prediction_is_permutation_equivariant(fitted: pf.PolyFormerClassifier) -> None:
    order = np.random.default_rng(0).permutation(300)
    permuted = pf.Graph(TASK.graph.adjacency()[order][:, order], np.asarray(TASK.graph.features)[order])
    assert np.allclose(fitted.predict_proba(permuted), fitted.predict_proba(TASK.graph)[order], atol=1e-5)


def test_prediction_on_another_graph(fitted: pf.PolyFormerClassifier) -> None:
    other = load_dataset("minefield:width=7,height=9,seed=4").graph
    assert fitted.predict_proba(other).shape == (63, 2)
    with pytest.raises(InvalidData, match=r"reads 7 features per node\. This graph has 3"):
        fitted.predict(pf.Graph([[0], [1]], np.ones((2, 3))))


def test_filter_response_is_the_sum_of_coefficients_times_responses(fitted: pf.PolyFormerClassifier) -> None:
    lam, nodes = np.linspace(0, 2, 5), [4, 100, 7]
    optimal = fitted.settings["basis"] == "optimal"
    channel = 2 if optimal else None
    response = fitted.filter_response(nodes, lam, channel=channel, graph=TASK.graph)
    assert response.shape == (3, 4, 5)
    tokens, recurrence = pf.tokens.compute_tokens_and_recurrence(TASK.graph, fitted.settings["basis"], 3)
    network = fitted._trained.model.network
    hidden = network.input(tokens[nodes])
    alpha = network.blocks[0].attention.filter_coefficients(network.blocks[0].attention_norm(hidden))
    basis = recurrence.response(lam, 2) if optimal else pf.basis_response("chebyshev", 3, lam)
    assert np.allclose(response, np.einsum("nhk,kl->nhl", alpha.detach().numpy(), basis), atol=1e-4)


def test_filter_response_says_what_it_cannot_do(fitted: pf.PolyFormerClassifier, tmp_path: Path) -> None:
    optimal = fitted.settings["basis"] == "optimal"
    with pytest.raises(InvalidParameter, match="'layer' must be 0"):
        fitted.filter_response([0], [0.0], layer=1, graph=TASK.graph)
    with pytest.raises(InvalidParameter, match=r"'channel' (must lie in 0|is for the optimal)"):
        fitted.filter_response([0], [0.0], channel=None if optimal else 1, graph=TASK.graph)
    with pytest.raises(InvalidParameter, match="'nodes' must lie"):
        fitted.filter_response([300], [0.0], graph=TASK.graph)
    fitted.save(tmp_path / "clf")
    with pytest.raises(InvalidParameter, match="loaded without its graph"):
        pf.PolyFormerClassifier.load(tmp_path / "clf").filter_response([0], [0.0])


def test_basis_of_ones_own_survives_saving(tmp_path: Path) -> None:
    class Halves(pf.FixedBasis):
        def response(self, lam: np.ndarray, order: int) -> np.ndarray:
            return (lam / 2) ** np.arange(order + 1)[:, None]

    clf = pf.PolyFormerClassifier(basis=Halves(), **FAST).fit(TASK.graph, TASK.labels, train=np.arange(100))
    clf.save(tmp_path / "clf")
    loaded = pf.PolyFormerClassifier.load(tmp_path / "clf")
    assert np.array_equal(loaded.predict_proba(TASK.graph), clf.predict_proba(TASK.graph))


def test_more_classes_masks_and_drawn_validation() -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((200, 3))
    labels = np.digitize(features[:, 0], [-0.5, 0.5])
    labels[150:] = -1
    mask = np.zeros(200, bool)
    mask[:150] = True
    # Neighbours are random, so the model must learn to leave them alone.
    clf = pf.PolyFormerClassifier(**{**FAST, "epochs": 40})
    clf.fit(pf.Graph(random.integers(0, 200, (2, 200)), features), labels, train=torch.from_numpy(mask))
    predicted = clf.predict(pf.Graph(random.integers(0, 200, (2, 200)), features))
    assert (predicted[150:] == np.digitize(features[150:, 0], [-0.5, 0.5])).mean() > 0.6


@pytest.mark.parametrize(
    ("labels", "train", "message"),
    [
        (TASK.labels[:-1], [0, 1], r"'labels' must have shape \(300,\)"),
        (TASK.labels, [], "'train' must name at least one node"),
        (TASK.labels, [0, 999], r"'nodes' must lie in 0\.\.299. Got 999"),
        (np.full(300, -1), [0, 1], "Node 0 is in the train split but has no label"),
        (np.linspace(0, 1, 300), [0, 1], "Unknown label type: continuous, such as 0.00334.* Use PolyFormerRegressor"),
        (TASK.labels, [0, 0, 1], "Node 0 is in the split more than once"),
        (np.array(["a"] * 300), [0, 1, 2], "All labels are of one class, 'a', so there is nothing to tell apart"),
        (np.zeros(300, int), [0, 1, 2], "All labels are of one class, '0', so there is nothing to tell apart"),
        (TASK.labels.astype("datetime64[D]"), [0, 1], "'labels' must be text or numbers"),
        (np.array([1, "a"] * 150, object), [0, 1], "'labels' must be all text or all numbers. Got a mixture"),
        (np.ones((300, 2)), [0, 1], r"'labels' must be one-dimensional.* Got shape \(300, 2\)"),
        (None, [0, 1], "'labels' must have a label for each of 300 nodes. Got none"),
    ],
)
def test_bad_labels_and_nodes(labels, train, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pf.PolyFormerClassifier(**FAST).fit(TASK.graph, labels, train=train)


def test_use_before_training_and_bad_settings(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="not trained yet"):
        pf.PolyFormerClassifier().predict(TASK.graph)
    with pytest.raises(NotFittedError, match="not trained yet"):
        pf.PolyFormerRegressor().predict(TASK.graph)
    with pytest.raises(InvalidParameter, match="'dropout' must be a number"):
        pf.PolyFormerClassifier(dropout="much").fit(TASK.graph, TASK.labels)
    with pytest.raises(InvalidParameter, match=r"'seed' must be a whole number, 0 or more\. Got -1\."):
        pf.PolyFormerClassifier(seed=-1).fit(TASK.graph, TASK.labels)
    numpy_numbers = pf.PolyFormerClassifier(order=np.int64(4), lr=np.float32(0.5), dropout=np.float64(0.1)).settings
    assert json.loads(json.dumps(numpy_numbers)) == numpy_numbers
    with pytest.raises(InvalidParameter, match="'heads' must be a whole number"):
        _ = pf.PolyFormerClassifier(heads=np.float64(1.5)).settings
    with pytest.raises(DataNotFound, match="no directory"):
        pf.PolyFormerClassifier.load(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileCorrupt, match="is damaged: it has no 'card'"):
        pf.PolyFormerClassifier.load(tmp_path)


def test_the_classifier_takes_every_setting_and_so_every_preset() -> None:
    every = {entry.name for kind in (PolyFormerSettings, TrainingSettings) for entry in fields(kind)}
    assert set(pf.PolyFormerClassifier().settings) == every
    assert set(signature(pf.PolyFormerClassifier).parameters) == every | {"model", "graph", "seed", "device"}
    published = load_preset("paper", "citeseer", "monomial")
    assert published["shuffle"] == "batches"
    assert published.items() <= pf.PolyFormerClassifier(**published).settings.items()


def test_a_loaded_classifier_is_the_one_that_was_saved(tmp_path: Path) -> None:
    clf = pf.PolyFormerClassifier(**FAST, seed=7, device="cpu", shuffle="batches")
    clf.fit(TASK.graph, TASK.labels, train=TASK.splits[0].train).save(tmp_path / "clf")
    loaded = pf.PolyFormerClassifier.load(tmp_path / "clf")
    assert (loaded.seed, loaded.device, loaded.settings) == (7, "cpu", clf._trained.card.settings)


def test_a_run_becomes_a_classifier_with_all_its_settings(tmp_path: Path) -> None:
    request = RunRequest(BOARD, seed=5, device="cpu", settings={**FAST, "shuffle": "batches"})
    execute_run(request, tmp_path / "run")
    loaded = pf.PolyFormerClassifier.load(tmp_path / "run")
    assert (loaded.seed, loaded.device, loaded.settings) == (5, "cpu", pf.Run.open(tmp_path / "run").card.settings)


def test_every_public_name_is_there() -> None:
    for name in pf.__all__:
        assert getattr(pf, name) is not None
    with pytest.raises(AttributeError):
        _ = pf.no_such_name


def test_validation_nodes_must_be_some() -> None:
    with pytest.raises(InvalidData, match="There are no validation nodes"):
        pf.PolyFormerClassifier(**FAST).fit(TASK.graph, TASK.labels, train=TASK.splits[0].train, val=[])


def test_predicting_another_graph_does_not_change_whose_filters_are_meant(fitted: pf.PolyFormerClassifier) -> None:
    channel = 0 if fitted.settings["basis"] == "optimal" else None
    before = fitted.filter_response([0], [1.0], channel=channel)
    fitted.predict_proba(load_dataset("minefield:width=7,height=9,seed=4").graph)
    with pytest.raises(InvalidData):
        fitted.predict(pf.Graph([[0], [1]], np.ones((2, 3), np.float32)))
    np.testing.assert_array_equal(fitted.filter_response([0], [1.0], channel=channel), before)


def test_an_imported_graph_comes_back(tmp_path: Path) -> None:
    TASK.save(tmp_path / "graph")
    again = pf.load_dataset(str(tmp_path / "graph"))
    assert again.graph.fingerprint == TASK.graph.fingerprint
    np.testing.assert_array_equal(again.labels, TASK.labels)
