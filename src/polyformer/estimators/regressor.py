"""PolyFormerRegressor: real values of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from polyformer.estimators.base import NodeEstimator
from polyformer.estimators.filter_views import FilterViews
from polyformer.estimators.inputs import ReadLabels, read_values

__all__ = ["PolyFormerRegressor"]


class PolyFormerRegressor(RegressorMixin, FilterViews, NodeEstimator):
    """PolyFormer, or another model by name, as a scikit-learn estimator of real values of nodes.

    Args:
        model, graph, seed, device, settings: as those of :class:`polyformer.estimators.PolyFormerClassifier`.

    Example:
        >>> from polyformer.graph import Graph
        >>> ring = np.arange(60)
        >>> graph = Graph([ring, (ring + 1) % 60], np.sin(ring / 5)[:, None])
        >>> model = PolyFormerRegressor(graph=graph, order=2, hidden_channels=8, epochs=2)
        >>> model.fit(ring[:50], np.cos(ring[:50] / 5)).predict([58, 59]).shape
        (2,)
    """

    _of_values = True

    def predict(self, graph: Any = None, nodes: Any = None) -> np.ndarray:
        """The value of each node, (n,).

        Args:
            graph: another graph with the same features, or node ids; by default the graph of the training.
            nodes: node ids or a mask; all nodes by default.
        """
        return self._scores(graph, nodes)[:, 0]

    def predict_interval(self, graph: Any = None, nodes: Any = None, *, coverage: float = 0.9) -> np.ndarray:
        """The ends of each node's interval, (n, 2): the intervals hold the truth with the frequency ``coverage``.

        See :mod:`polyformer.coverage`. It is refused where too few validation nodes were held out.
        """
        return self._fitted().card.coverage(coverage).intervals(self._scores(graph, nodes))

    def score(self, graph: Any, labels: Any, sample_weight: Any = None, *, nodes: Any = None) -> float:
        """R² on nodes with a label.

        Args:
            graph: a graph, with a label for each of its nodes, or node ids with a label for each.
            nodes: ids of the nodes of the graph to judge by; all nodes with a label by default.
        """
        from sklearn.metrics import r2_score

        return self._judge(r2_score, graph, labels, sample_weight, nodes)

    def _read_labels(self, labels: Any, unlabelled: bool) -> ReadLabels:
        return read_values(labels, unlabelled)

    def _keep_classes(self, classes: np.ndarray | None) -> None:
        assert classes is None
