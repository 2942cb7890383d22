"""What is computed once per graph and kept on disk: eigenvectors, return probabilities, node2vec vectors.

A file is named by all that its content depends on, so it is never out of date, and appears whole. A damaged one is
computed again.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from polyformer.datasets.sources import precomputed_root
from polyformer.files import reporting_io_errors, write_whole
from polyformer.graph import Graph

__all__ = ["precomputed"]

FORMAT = 1


def precomputed(
    kind: str, graph: Graph, parameters: Mapping[str, Any], compute: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays that ``compute`` gives, from disk if they were computed before.

    Args:
        kind: what they are, e.g. ``"eigenpairs"``.
        graph: whose structure and weights they depend on; its features they may not depend on.
        parameters: what else they depend on, as JSON values.
    """
    name = json.dumps([FORMAT, kind, graph.structure_fingerprint, dict(parameters)], sort_keys=True)
    path = precomputed_root() / f"{kind}-{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}.npz"
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        pass
    arrays = compute()
    with reporting_io_errors(kind, path), write_whole(path) as file:
        np.savez(file, allow_pickle=False, **arrays)
    return arrays
