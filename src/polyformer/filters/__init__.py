"""The filters that a trained model learned: coefficients and response of every node, and clusters of nodes."""

from __future__ import annotations

from polyformer.filters.clusters import FilterClusters, cluster_filters
from polyformer.filters.description import Filters, describe_filters
from polyformer.filters.responses import (
    BANDS,
    filter_coefficients,
    filter_response,
    frequency_grid,
    local_homophily,
    order_contributions,
    pass_shares,
    spectral_coefficients,
    spectral_layers,
)
from polyformer.filters.table import write_filters

__all__ = [
    "BANDS",
    "FilterClusters",
    "Filters",
    "cluster_filters",
    "describe_filters",
    "filter_coefficients",
    "filter_response",
    "frequency_grid",
    "local_homophily",
    "order_contributions",
    "pass_shares",
    "spectral_coefficients",
    "spectral_layers",
    "write_filters",
]
