"""Scikit-learn's own checks of estimators.

Its checks pass matrices of features, where these estimators take node ids of a graph. So those that train nothing run
on the estimators themselves, and all others on estimators whose nodes are the rows of a matrix, without edges.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import estimator_checks
from sklearn.utils.validation import validate_data

import polyformer as pf

WITHOUT_TRAINING = [
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimators_unfitted",
]

DOES_NOT_APPLY = {
    "check_fit2d_1sample": "the sentence on too few nodes speaks of nodes, not of samples",
    "check_methods_subset_invariance": "float32: another batch rounds in another order, by about 1e-7",
}
"""Checks that may fail, and why."""

QUICK = {
    "order": 1,
    "hidden_channels": 8,
    "heads": 1,
    "epochs": 30,
    "lr": 0.03,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "batch_size": "full",
}


def _graph(rows: np.ndarray) -> pf.Graph:
    return pf.Graph(np.empty((2, 0), np.int64), rows, len(rows))


class _OnRows:
    """Rows of a matrix as nodes without edges; what scikit-learn wants of a matrix is checked by scikit-learn."""

    kind: Any

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        twin = self.kind(graph=_graph(rows), seed=self.seed, **self._asked()).fit(np.arange(len(rows)), labels)
        learned = {name: value for name, value in vars(twin).items() if name.endswith("_") or name.startswith("_")}
        self.__dict__.update(learned)
        return self

    def _rows(self, X: Any) -> pf.Graph:  # noqa: N803
        self._fitted()
        return _graph(validate_data(self, X, reset=False, dtype=np.float64))

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        return self.kind.predict(self, self._rows(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array = False, True
        return tags


class ClassifierOnRows(_OnRows, pf.PolyFormerClassifier):
    kind = pf.PolyFormerClassifier

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        return super().predict_proba(self._rows(X))

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        return float(accuracy_score(y, self.predict(X)))


class RegressorOnRows(_OnRows, pf.PolyFormerRegressor):
    kind = pf.PolyFormerRegressor

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        return float(r2_score(y, self.predict(X)))


@pytest.mark.parametrize("check", WITHOUT_TRAINING)
@pytest.mark.parametrize("kind", [pf.PolyFormerClassifier, pf.PolyFormerRegressor])
def test_checks_without_training(kind: Any, check: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(estimator_checks, check)(kind.__name__, kind())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "settings"), [(ClassifierOnRows, {}), (RegressorOnRows, {"metric": "mae"})])
def test_checks_with_training(kind: Any, settings: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = estimator_checks.check_estimator(kind(**QUICK, **settings), on_skip=None, on_fail=None)
    failed = {outcome["check_name"]: str(outcome["exception"]) for outcome in outcomes if outcome["status"] == "failed"}
    assert {name: message for name, message in failed.items() if name not in DOES_NOT_APPLY} == {}
    assert sum(outcome["status"] == "passed" for outcome in outcomes) > 40
