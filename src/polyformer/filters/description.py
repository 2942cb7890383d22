"""The filters of some nodes, described: responses, shares of the spectrum and of the orders, kinds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polyformer.filters.clusters import FilterClusters, cluster_filters
from polyformer.filters.responses import frequency_grid, order_contributions, pass_shares, spectral_layers
from polyformer.models import NodeWiseFilter

__all__ = ["Filters", "describe_filters"]


@dataclass(frozen=True, eq=False)
class Filters:
    """Filters of some nodes.

    Shapes:
        ``lam`` (L,); ``tokens`` (K+1, L): g_k(λ); ``coefficients`` (n, H, K+1); ``bands`` (n, 3);
        ``contributions`` (n, K+1); ``cluster`` (n,).

    Attributes:
        exact: whether the response is all that the model does to the spectrum before its read-out.
        channel: the feature column of an optimal basis.
        inputs: what each layer that has a response is applied to, the first one first.
        later: (n, S-1, H, K+1) coefficients of the layers after the first that have a response; None where none has.
    """

    lam: np.ndarray
    tokens: np.ndarray
    coefficients: np.ndarray
    bands: np.ndarray
    contributions: np.ndarray
    clusters: FilterClusters
    cluster: np.ndarray
    layers: int
    exact: bool
    channel: int | None
    inputs: tuple[str, ...] = ()
    later: np.ndarray | None = None

    @property
    def responses(self) -> np.ndarray:
        """(n, H, L)."""
        return np.einsum("nhk,kl->nhl", self.coefficients, self.tokens)

    @property
    def mean_order(self) -> np.ndarray:
        """(n,): the mean of k over :attr:`contributions`."""
        return np.asarray(self.contributions @ np.arange(self.contributions.shape[1]))


def describe_filters(
    model: NodeWiseFilter, alpha: np.ndarray, number: int | None = None, by_shape: bool = False
) -> Filters:
    """What the coefficients of some nodes, (n, H, K+1), amount to.

    Args:
        number: number of clusters; selected by silhouette by default.
        by_shape: cluster responses of unit norm, for models in which a read-out sets the scale.
    """
    lam, channel = frequency_grid(), model.default_channel
    tokens = model.token_response(lam, channel)
    responses = np.einsum("nhk,kl->nhl", alpha, tokens)
    compared = responses
    if by_shape:
        norm = np.sqrt(np.square(responses).sum(axis=(1, 2), keepdims=True))
        compared = np.divide(responses, norm, out=np.zeros_like(responses), where=norm > 0)
    clusters = cluster_filters(compared, number)
    return Filters(
        lam,
        tokens,
        alpha,
        pass_shares(responses, lam),
        order_contributions(alpha, tokens),
        clusters,
        clusters.assign(compared),
        model.filter_layers,
        model.exact_filter,
        channel,
        tuple(str(model.filter_input(layer)) for layer in spectral_layers(model)),
    )
