"""The search space of a model, with the batch sizes, and the settings that the search tries first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from polyformer.datasets import data_name
from polyformer.errors import InvalidParameter
from polyformer.models import MODELS
from polyformer.presets import known_settings
from polyformer.runs.default_settings import defaults_for
from polyformer.runs.request import RunRequest
from polyformer.training.settings import AUTO_BATCH_SIZE, WIDE_FEATURES

__all__ = ["LARGE_TRAINING_SET", "first_guesses", "search_space", "with_unsearched_defaults"]

LARGE_TRAINING_SET = 50_000
"""More training nodes than this are searched as the paper searches its large graphs."""

_BATCH_SIZES = (128, 256, 512, 1024, "full")
_WIDE_BATCH_SIZES = ("auto", "full")

_FALLBACKS = {
    "attention_lr": "lr",
    "attention_weight_decay": "weight_decay",
    "filter_lr": "lr",
    "filter_weight_decay": "weight_decay",
    "ffn_channels": "hidden_channels",
}
"""Settings that are none by default, and whose value they have then."""


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


def with_unsearched_defaults(request: RunRequest, space: Mapping[str, Sequence[Any]], num_train: int) -> RunRequest:
    """The request with the defaults for so many training nodes fixed, so that a preset of the result holds them too."""
    if request.preset is not None:
        return request
    fitting = defaults_for(MODELS[request.model], num_train, request.settings or {})
    fixed = {name: value for name, value in fitting.items() if name not in space}
    return replace(request, settings={**fixed, **(request.settings or {})})


def first_guesses(request: RunRequest, space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Settings to try before any others: the defaults, and what presets hold for this model and data in any basis.

    The defaults for few training nodes are tried too, however many there are. Values that the space does not have are
    left to the search.
    """
    defaults = [request.resolve_settings(), request.resolve_settings(num_train=1)]
    known = [*defaults, *known_settings(data_name(request.data), request.model)]
    guesses = [
        {name: value for name, choices in space.items() if (value := _value(row, name, choices)) in choices}
        for row in known
    ]
    return [guess for i, guess in enumerate(guesses) if guess and guess not in guesses[:i]]


def _value(row: Mapping[str, Any], name: str, choices: Sequence[Any]) -> Any:
    """A setting, or what stands behind it where that is left open."""
    value = row.get(name)
    if value is None and name in _FALLBACKS:
        return row.get(_FALLBACKS[name])
    if value == "auto" and value not in choices:
        return AUTO_BATCH_SIZE
    return value
