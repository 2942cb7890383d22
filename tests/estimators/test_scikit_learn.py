"""Estimators in the hands of scikit-learn: parameters, copies, cross-validation and searches on node ids."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

import polyformer as pf
from polyformer.datasets import load_dataset
from polyformer.errors import InvalidData, InvalidParameter, UnknownName
from polyformer.models import MODELS

TASK = load_dataset("minefield:width=15,height=12")
NODES = np.arange(TASK.graph.num_nodes)
QUICK = {"model": "mlp", "hidden_channels": 8, "epochs": 2}
VALUES = TASK.graph.degrees + 0.25 * TASK.labels
KINDS = [(pf.PolyFormerClassifier, TASK.labels), (pf.PolyFormerRegressor, VALUES)]


@pytest.mark.parametrize(("kind", "labels"), KINDS)
def test_both_habits_train_the_same_model(kind: Any, labels: np.ndarray) -> None:
    chosen = NODES[NODES % 3 > 0]
    at_once = kind(order=2, hidden_channels=8, heads=2, epochs=2).fit(TASK.graph, labels, train=chosen)
    by_ids = kind(graph=TASK.graph, order=2, hidden_channels=8, heads=2, epochs=2).fit(chosen, labels[chosen])
    whole = by_ids.predict(NODES)
    assert np.allclose(at_once.predict(TASK.graph), whole)
    assert np.allclose(at_once.predict(nodes=[7, 3, 7]), whole[[7, 3, 7]]), "in the order asked for, also repeated"
    assert np.allclose(by_ids.predict(np.array([[7], [3]])), whole[[7, 3]]), "a column of ids"
    assert at_once.score(TASK.graph, labels) == pytest.approx(by_ids.score(NODES, labels))
    assert at_once.score(TASK.graph, labels, nodes=chosen) == pytest.approx(by_ids.score(chosen, labels[chosen]))
    assert by_ids.n_features_in_ == 7
    assert len(by_ids.predict([])) == 0


@pytest.mark.parametrize(("kind", "labels"), KINDS)
def test_cross_validation_and_search_work_on_node_ids(kind: Any, labels: np.ndarray) -> None:
    estimator = kind(graph=TASK.graph, **QUICK)
    assert is_classifier(estimator) != is_regressor(estimator)
    scores = cross_val_score(estimator, NODES, labels, cv=3)
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    search = GridSearchCV(estimator, {"hidden_channels": [4, 8], "seed": [0, 1]}, cv=2).fit(NODES, labels)
    assert search.best_estimator_.graph is TASK.graph
    assert search.predict(NODES[:5]).shape == (5,)


def test_a_search_over_models_brings_the_defaults_of_each() -> None:
    estimator = pf.PolyFormerClassifier(graph=TASK.graph, epochs=1)
    search = GridSearchCV(estimator, {"model": ["mlp", "polyformer"]}, cv=2, error_score="raise").fit(
        NODES, TASK.labels
    )
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    for model in ("mlp", "gprgnn"):
        twin = clone(estimator).set_params(model=model)
        defaults = MODELS[model].settings_type()
        assert twin.hidden_channels == twin.get_params()["hidden_channels"] == defaults.hidden_channels
        assert twin.settings["epochs"] == 1


def test_probabilities_of_folds_have_the_columns_of_the_classes() -> None:
    names = np.array(["safe", "mine"])[TASK.labels]
    estimator = pf.PolyFormerClassifier(graph=TASK.graph, **QUICK)
    probabilities = cross_val_predict(estimator, NODES, names, cv=2, method="predict_proba")
    assert probabilities.shape == (len(NODES), 2)
    assert np.isfinite(cross_val_score(estimator, NODES, names, cv=2, scoring="neg_log_loss")).all()


@pytest.mark.parametrize(("kind", "labels"), KINDS)
def test_copies_share_the_graph(kind: Any, labels: np.ndarray) -> None:
    class Uncopied(pf.Graph):
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("the graph is copied")

        def __copy__(self) -> Any:
            raise AssertionError("the graph is copied")

    graph = Uncopied(TASK.graph.adjacency(), np.asarray(TASK.graph.features))
    basis = pf.Jacobi(a=0.5)
    estimator = kind(graph=graph, basis=basis, order=2, hidden_channels=8, heads=2, epochs=1).fit(NODES, labels)
    for twin in (clone(estimator), copy.copy(estimator), copy.deepcopy(estimator)):
        assert twin.graph is graph
        assert twin.get_params().keys() == estimator.get_params().keys()
        assert twin.settings == estimator.settings
    assert clone(estimator).basis is not basis, "other parameters are copied"
    assert not hasattr(clone(estimator), "n_features_in_"), "a clone is not trained"
    assert np.array_equal(copy.deepcopy(estimator).predict(NODES), estimator.predict(NODES))


def test_a_pickle_predicts_the_same_and_holds_no_tokens() -> None:
    small, large = (
        pf.PolyFormerClassifier(order=order, hidden_channels=8, heads=2, epochs=1).fit(TASK.graph, TASK.labels)
        for order in (1, 40)
    )
    again = pickle.loads(pickle.dumps(large))
    assert np.array_equal(again.predict_proba(TASK.graph), large.predict_proba(TASK.graph))
    tokens = 40 * TASK.graph.num_nodes * 7 * 4
    parameters = 4 * sum(tensor.numel() for tensor in large._trained.model.parameters())
    assert len(pickle.dumps(large)) - len(pickle.dumps(small)) < parameters + tokens / 4


def test_parameters_by_name() -> None:
    estimator = pf.PolyFormerClassifier(order=4)
    assert (estimator.order, estimator.get_params()["order"], estimator.get_params()["seed"]) == (4, 4, 0)
    assert estimator.set_params(order=6, lr=0.5) is estimator
    assert (estimator.order, estimator.settings["lr"]) == (6, 0.5)
    estimator.order = 7
    assert estimator.settings["order"] == 7
    with pytest.raises(UnknownName, match=r"Unknown setting 'ordr' of the model 'polyformer'\. Did you mean 'order'\?"):
        estimator.set_params(ordr=3)
    with pytest.raises(UnknownName, match="Unknown setting 'ordr'"):
        pf.PolyFormerClassifier(ordr=3)
    with pytest.raises(UnknownName, match="Unknown setting 'order' of the model 'mlp'"):
        estimator.set_params(model="mlp").fit(TASK.graph, TASK.labels)
    with pytest.raises(UnknownName, match="Unknown model 'polyforme'"):
        pf.PolyFormerClassifier(model="polyforme").fit(TASK.graph, TASK.labels)
    with pytest.raises(InvalidParameter, match=r"'model' must be a name\. Got int"):
        pf.PolyFormerClassifier(model=3).fit(TASK.graph, TASK.labels)
    with pytest.raises(AttributeError, match="no attribute 'orders'"):
        _ = estimator.orders


def test_the_representation_shows_what_differs_from_the_defaults() -> None:
    assert repr(pf.PolyFormerClassifier()) == "PolyFormerClassifier()"
    shown = repr(pf.PolyFormerRegressor(model="gprgnn", graph=TASK.graph, order=MODELS["gprgnn"].settings_type().order))
    assert shown == f"PolyFormerRegressor(model='gprgnn', graph={TASK.graph!r})"
    assert repr(pf.PolyFormerRegressor(lr=0.5, seed=3)) == "PolyFormerRegressor(seed=3, lr=0.5)"
    assert len(repr(pf.PolyFormerClassifier(basis="x" * 2000))) == 700


@pytest.mark.parametrize("model", ["mlp", "polyattn", "gprgnn", "sgformer"])
@pytest.mark.parametrize(("kind", "labels"), KINDS)
def test_any_model_by_name_also_after_saving(kind: Any, labels: np.ndarray, model: str, tmp_path: Path) -> None:
    estimator = kind(model=model, epochs=1, seed=3).fit(TASK.graph, labels)
    estimator.save(tmp_path / "saved")
    loaded = kind.load(tmp_path / "saved")
    assert (loaded.model, loaded.seed, loaded.settings) == (model, 3, estimator.settings)
    assert np.array_equal(loaded.predict(TASK.graph), estimator.predict(TASK.graph))
    other = next(other for other, _ in KINDS if other is not kind)
    with pytest.raises(InvalidParameter, match=rf"Use {kind.__name__}\.load"):
        other.load(tmp_path / "saved")
    if model == "polyattn":
        assert estimator.filter_response([0, 5], [0.0, 1.0]).shape[::2] == (2, 2)
    else:
        with pytest.raises(InvalidParameter, match=f"The model '{model}' has no filter for each node"):
            estimator.filter_response([0], [1.0])


@pytest.mark.parametrize(
    "names",
    [np.array(["safe", "mine"]), np.array([7, -1]), np.array([True, False]), np.array([0.5, 2.0]) * 2, [10**12, 3]],
    ids=["text", "negative", "truth", "whole floats", "large"],
)
def test_classes_are_called_as_the_user_calls_them(names: Any, tmp_path: Path) -> None:
    labels = np.asarray(names)[TASK.labels]
    estimator = pf.PolyFormerClassifier(graph=TASK.graph, **QUICK).fit(NODES, labels)
    assert np.array_equal(estimator.classes_, np.unique(labels))
    assert set(estimator.predict(NODES)) <= set(labels)
    estimator.save(tmp_path / "saved")
    loaded = pf.PolyFormerClassifier.load(tmp_path / "saved").set_params(graph=TASK.graph)
    assert loaded.classes_.dtype == estimator.classes_.dtype
    assert np.array_equal(loaded.predict(NODES), estimator.predict(NODES))


def test_classes_do_not_depend_on_their_names() -> None:
    plain = pf.PolyFormerClassifier(graph=TASK.graph, **QUICK).fit(NODES, TASK.labels)
    named = pf.PolyFormerClassifier(graph=TASK.graph, **QUICK).fit(NODES, np.array(["a", "b"])[TASK.labels])
    assert np.array_equal(plain.predict_proba(), named.predict_proba())
    assert np.array_equal(np.array(["a", "b"])[plain.predict()], named.predict())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NODES, TASK.labels[:-1]), "'y' must have a label for each of 180 nodes. Got 179"),
        ((NODES, None), "'y' must have a label for each node. Got none"),
        (([0, 180], [0, 1]), r"'nodes' must lie in 0\.\.179. Got 180"),
        (([[0, 1], [2, 3]], [0, 1]), "'nodes' must be a list of node ids"),
        (([0.5, 1.5], [0, 1]), "'nodes' must be a list of node ids"),
        ((NODES[:4], ["a", "b", None, "a"]), "'y' must have a label for each node. Got none at position 2"),
        (([1, 2, 2, 3], [0, 1, 0, 1]), "Node 2 is in the split more than once"),
    ],
)
def test_bad_node_ids_and_labels(arguments: tuple[Any, Any], message: str) -> None:
    with pytest.raises((InvalidData, InvalidParameter), match=message):
        pf.PolyFormerClassifier(graph=TASK.graph, **QUICK).fit(*arguments)


def test_nodes_are_named_once() -> None:
    estimator = pf.PolyFormerClassifier(graph=TASK.graph, **QUICK).fit(NODES, TASK.labels)
    with pytest.raises(InvalidParameter, match="Name the nodes once"):
        estimator.predict([1], nodes=[2])


def test_several_processes_can_cross_validate() -> None:
    """What joblib sends to another process is a pickle of the estimator with its graph."""
    estimator = pickle.loads(pickle.dumps(pf.PolyFormerClassifier(graph=TASK.graph, **QUICK)))
    here = cross_val_score(pf.PolyFormerClassifier(graph=TASK.graph, **QUICK), NODES, TASK.labels, cv=2)
    assert np.array_equal(cross_val_score(estimator, NODES, TASK.labels, cv=2), here)
