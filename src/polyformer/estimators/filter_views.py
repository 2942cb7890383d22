"""The filters that an estimator learned: responses and charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyformer.errors import InvalidParameter
from polyformer.estimators.base import NodeEstimator
from polyformer.filters import describe_filters, filter_coefficients, filter_response
from polyformer.graph import Graph
from polyformer.models import NodeWiseFilter, Workload

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from polyformer.filters import Filters

__all__ = ["FilterViews"]


class FilterViews(NodeEstimator):
    """What an estimator can show of its filters, where its model has a filter for every node."""

    def filter_response(
        self, nodes: Any, lam: Any, layer: int = 0, channel: int | None = None, graph: Any = None
    ) -> np.ndarray:
        """The filter that each node learned: (len(nodes), heads, len(lam)).

        It is that layer's PolyAttn on its own normalised input, the residual left out; layer 0 only. The optimal basis
        needs the feature column ``channel``.

        Args:
            graph: the graph of the nodes; by default that of the training, whatever was predicted since.
        """
        model, ids = self._bound(nodes, graph)
        return filter_response(model, ids, lam, layer, channel)

    def _bound(self, nodes: Any, graph: Any) -> tuple[NodeWiseFilter, np.ndarray]:
        """The model, bound to nodes of the given graph or of that of the training, and their ids."""
        trained = self._fitted()
        model = trained.model
        if not isinstance(model, NodeWiseFilter):
            raise InvalidParameter(
                f"The model '{trained.card.model}' has no filter for each node. Use polyformer or polyattn."
            )
        target, ids = self._target(graph, nodes)
        ids = np.arange(target.num_nodes) if ids is None else ids
        model.bind(target, Workload(np.unique(ids), len(ids), labels=trained.shown_labels(target)))
        return model, ids

    def plot_filters(self, nodes: Any = None, clusters: int | None = None, graph: Graph | None = None) -> go.Figure:
        """A Plotly figure of the filters that were learned, mean over heads; residual and LayerNorm are left out.

        Args:
            nodes: ids of the nodes whose filters are drawn, a line each; by default the kinds of filters of all nodes
                are drawn, with their spread.
            clusters: how many kinds; by default 2 to 6, chosen by silhouette.
            graph: the graph of the nodes; by default that of the training.
        """
        from polyformer.reports import charts

        ids, filters = self._described_filters(nodes, clusters, graph)
        if nodes is None:
            return charts.cluster_chart(filters)
        return charts.nodes_chart(filters.lam, filters.responses.mean(axis=1), ids.tolist())

    def plot_orders(self, clusters: int | None = None, graph: Graph | None = None) -> go.Figure:
        """A Plotly figure of how much each order contributes to each kind of filter; see :meth:`plot_filters`."""
        from polyformer.reports import charts

        return charts.order_chart(self._described_filters(None, clusters, graph)[1])

    def _described_filters(self, nodes: Any, clusters: int | None, graph: Graph | None) -> tuple[np.ndarray, Filters]:
        from polyformer.reports import check_extra

        check_extra()
        model, ids = self._bound(nodes, graph)
        return ids, describe_filters(model, filter_coefficients(model, ids), clusters if nodes is None else 1)
