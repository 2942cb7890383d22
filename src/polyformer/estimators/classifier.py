"""PolyFormerClassifier: the classes of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from polyformer.estimators.base import NodeEstimator
from polyformer.estimators.filter_views import FilterViews
from polyformer.estimators.inputs import ReadLabels, read_classes
from polyformer.metrics import predicted_classes

__all__ = ["PolyFormerClassifier"]


class PolyFormerClassifier(ClassifierMixin, FilterViews, NodeEstimator):
    """PolyFormer, or another model by name, as a scikit-learn estimator of node classes.

    Every setting is described by ``polyformer models NAME``, with its default. Unlike the command line, an estimator
    tries no other settings: scikit-learn's searches do that, e.g. over ``label_input``.

    Args:
        model: a name that ``polyformer models`` lists.
        graph: the graph whose node ids ``fit`` and ``predict`` take, as ``cross_val_score`` and ``GridSearchCV`` do;
            it is never copied.
        seed: seed for the initial parameters, batches, dropout and drawn validation nodes.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        settings: settings of the model and of its training by name. ``basis`` may be a name, a spec such as
            ``"jacobi:a=1,b=0.5"`` or a basis object, also one of your own.

    Attributes:
        classes_: (C,) the classes, sorted, of the same kind as the labels; column c of probabilities is classes_[c].
        n_features_in_: number of features per node that the model reads.
        best_epoch_, best_score_: the epoch that was kept and its score on the validation nodes.
        preprocessing_: a sentence on each thing that was done to the features.

    Example:
        >>> from polyformer.datasets import load_dataset
        >>> task = load_dataset("minefield:width=30,height=30")
        >>> clf = PolyFormerClassifier(order=3, hidden_channels=16, epochs=2)
        >>> clf = clf.fit(task.graph, task.labels, train=task.splits[0].train)
        >>> clf.predict_proba(task.graph).shape
        (900, 2)
        >>> from sklearn.model_selection import cross_val_score
        >>> clf = PolyFormerClassifier(graph=task.graph, model="mlp", epochs=2)
        >>> cross_val_score(clf, np.arange(900), task.labels, cv=3).shape
        (3,)
    """

    _of_values = False

    def predict_proba(self, graph: Any = None, nodes: Any = None) -> np.ndarray:
        """Probabilities, (N, C) of all nodes or (n, C) of some, at the temperature that fits validation best.

        Args:
            graph: another graph with the same features, or node ids; by default the graph of the training.
            nodes: node ids or a mask; all nodes by default.
        """
        return self._scores(graph, nodes)

    def predict(self, graph: Any = None, nodes: Any = None) -> np.ndarray:
        """The class of each node: the most probable, or of two unequal classes by ``threshold_``.

        Args:
            graph: another graph with the same features, or node ids; by default the graph of the training.
            nodes: node ids or a mask; all nodes by default.
        """
        predicted = predicted_classes(self._scores(graph, nodes), self.threshold_)
        return np.asarray(self.classes_[predicted])

    def predict_set(self, graph: Any = None, nodes: Any = None, *, coverage: float = 0.9) -> np.ndarray:
        """Which classes are in each node's set, (n, C) bool: the sets hold the truth with the frequency ``coverage``.

        See :mod:`polyformer.coverage`. It is refused where too few validation nodes were held out.
        """
        return self._fitted().card.coverage(coverage).sets(self._scores(graph, nodes))

    def score(self, graph: Any, labels: Any, sample_weight: Any = None, *, nodes: Any = None) -> float:
        """Accuracy on nodes with a label.

        Args:
            graph: a graph, with a label for each of its nodes, or node ids with a label for each.
            nodes: ids of the nodes of the graph to judge by; all nodes with a label by default.
        """
        from sklearn.metrics import accuracy_score

        return self._judge(accuracy_score, graph, labels, sample_weight, nodes)

    @property
    def threshold_(self) -> float | None:
        """The probability from which on the second of two unequal classes is predicted, chosen on validation nodes.

        None where the most probable class is predicted.
        """
        return self._fitted().card.threshold

    @property
    def temperature_(self) -> float:
        """T, fitted on validation nodes: the model's outputs are divided by T before they become probabilities."""
        return self._fitted().card.calibration.temperature

    @property
    def calibration_(self) -> dict[str, Any]:
        """Log loss and calibration error before and after, on validation nodes that the temperature has not seen."""
        from polyformer.calibration import calibration_facts

        return calibration_facts(self._fitted().card.calibration)["calibration"] or {}

    def _read_labels(self, labels: Any, unlabelled: bool) -> ReadLabels:
        return read_classes(labels, unlabelled)

    def _keep_classes(self, classes: np.ndarray | None) -> None:
        assert classes is not None
        self.classes_ = classes
