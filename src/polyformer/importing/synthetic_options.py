"""The options of a made-up graph: ``synthetic:key=value,…``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from polyformer.errors import InvalidParameter
from polyformer.registry import check_options, parse_spec

__all__ = ["SyntheticOptions"]


@dataclass(frozen=True)
class SyntheticOptions:
    """The options of ``synthetic:key=value,…``.

    Attributes:
        nodes, edges: number of nodes and edges; repeated edges and loops are dropped and replaced, so that the number
            of edges is within 1 % of this number.
        features: number of feature columns; column j of a node is (centre of its class)_j plus noise, with variance 1.
        classes: number of communities, which differ in size; a node's label is its community.
        labelled: how many nodes have a label: a share up to 1, or a number of nodes.
        homophily: share of the edges that are drawn within a community; other edges are drawn among all nodes.
        noise: standard deviation of the noise; the centres have standard deviation 1.
        dtype: type of the features, float16 or float32.
        seed: seed of all draws; the same options give the same bytes.

    Example:
        >>> SyntheticOptions.parse("synthetic:nodes=1e3,edges=5000").nodes
        1000
    """

    nodes: int = 100_000
    edges: int = 1_000_000
    features: int = 64
    classes: int = 10
    labelled: float = 1.0
    homophily: float = 0.6
    noise: float = 4.0
    dtype: str = "float32"
    seed: int = 0

    @classmethod
    def parse(cls, spec: str) -> SyntheticOptions:
        """Read the options from the text after ``polyformer import``."""
        name, given = parse_spec(spec)
        check_options("source", name, given, [field.name for field in fields(cls)])
        for key in ("nodes", "edges", "features", "classes", "seed"):
            if key in given:
                given[key] = _whole(key, given[key])
        return cls(**given)

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("nodes", self.nodes, 4, 2**31 - 1),
            ("edges", self.edges, 1, self.nodes * (self.nodes - 1) // 8),  # a quarter of all pairs
            ("features", self.features, 0, 1 << 20),
            ("classes", self.classes, 1, self.nodes // 2),
            ("homophily", self.homophily, 0, 1),
            ("noise", self.noise, 0, 1e4),
            ("seed", self.seed, 0, 2**63 - 1),
            ("labelled", self.labelled, 0, self.nodes),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InvalidParameter(f"'{name}' of a synthetic graph must lie in {least}..{most}. Got {value!r}.")
        if self.dtype not in ("float16", "float32"):
            raise InvalidParameter(f"'dtype' of a synthetic graph must be float16 or float32. Got '{self.dtype}'.")

    @property
    def num_labelled(self) -> int:
        """How many nodes have a label."""
        return int(self.labelled if self.labelled > 1 else round(self.labelled * self.nodes))

    @property
    def disk_bytes(self) -> int:
        """Bytes of the graph directory; there are no temporary files."""
        itemsize = np.dtype(self.dtype).itemsize
        return 8 * self.edges + 16 * self.nodes + itemsize * self.nodes * self.features + 8 * self.num_labelled


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not float(value).is_integer():
        raise InvalidParameter(f"'{name}' of a synthetic graph must be a whole number such as 1e6. Got {value!r}.")
    return int(value)
