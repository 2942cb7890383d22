"""Default settings that depend on the data: the one place that decides which defaults a task gets, and which it tries.

The rule reads one fact, the number of training nodes. At most ``FEW_LABELS`` of them are few, and the model's
``few_label_defaults`` take the place of its defaults. Whatever the user asks for goes before either, and a preset is
never mixed with them: its empty cells mean the plain defaults. Rule and settings were chosen by validation scores, as
``docs/which-model.md`` tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyformer.models import NodeModel

__all__ = ["FEW_LABELS", "NEUTRAL_SETTINGS", "alternatives_for", "defaults_for"]

FEW_LABELS = 768
"""So many training nodes, or fewer, are few: an epoch is then at most three batches of 256."""

NEUTRAL_SETTINGS = frozenset({"metric", "scale_features", "class_weights", "targets"})
"""Settings that say what is wanted and not how to learn it: a run that was asked for with these alone tries others."""


def defaults_for(kind: type[NodeModel], num_train: int | None, asked: Mapping[str, Any] = {}) -> Mapping[str, Any]:
    """Settings that take the place of the defaults of settings and training.

    Args:
        kind: the model.
        num_train: the number of training nodes; None where the data is not known yet.
        asked: what the user asks for. Exact fits by L-BFGS keep the plain defaults: they have no rate and no decay.

    >>> from polyformer.models import MODELS
    >>> [defaults_for(MODELS["polyformer"], count).get("order") for count in (None, 140, 1000)]
    [None, 4, None]
    """
    few = num_train is not None and num_train <= FEW_LABELS and asked.get("optimizer") != "lbfgs"
    return {**kind.training_defaults, **(kind.few_label_defaults if few else {})}


def alternatives_for(kind: type[NodeModel], num_train: int) -> Sequence[Mapping[str, Any]]:
    """Settings that a run of so many training nodes tries beside its defaults; none for a model without such.

    >>> from polyformer.models import MODELS
    >>> alternatives_for(MODELS["polyformer"], 140), alternatives_for(MODELS["mlp"], 140)
    (({'order': 10, 'lr': 0.001, 'weight_decay': 0.02},), ())
    """
    return kind.few_label_alternatives if num_train <= FEW_LABELS else kind.alternatives
