"""What is searched: the model's space, and the size of batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyformer.errors import InvalidParameter
from polyformer.models import MODELS
from polyformer.training.run import RunRequest
from polyformer.training.settings import WIDE_FEATURES

__all__ = ["LARGE_TRAINING_SET", "search_space"]

LARGE_TRAINING_SET = 50_000
"""More training nodes than this are searched as the paper searches its large graphs."""

_BATCH_SIZES = (128, 256, 512, 1024, "full")
_WIDE_BATCH_SIZES = ("auto", "full")


def search_space(request: RunRequest, num_train: int, num_features: int) -> dict[str, Sequence[Any]]:
    """For every setting that is searched, its values; what the request fixes is left out.

    Small batches reach a score far sooner than full ones, so their size is searched too: not for models that need the
    whole graph for any output, and in two steps for wide features, where each batch costs a propagation.
    """
    kind = MODELS[request.model]
    large = num_train > LARGE_TRAINING_SET and kind.large_search_space
    space = dict(kind.large_search_space if large else kind.search_space)
    if kind.training_defaults.get("batch_size") != "full":
        space.setdefault("batch_size", _BATCH_SIZES if num_features <= WIDE_FEATURES else _WIDE_BATCH_SIZES)
    fixed = request.asked_settings()
    left = {name: choices for name, choices in space.items() if name not in fixed}
    if not left:
        raise InvalidParameter("Nothing is left to search: every setting is fixed. Fix fewer with --set and --preset.")
    return left
