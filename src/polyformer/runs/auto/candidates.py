"""The models that ``auto`` tries. To add one: add its line to ``CANDIDATES``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from polyformer.errors import UnknownName
from polyformer.models import MODELS
from polyformer.registry import suggest
from polyformer.runs.request import RunRequest
from polyformer.training.settings import TrainingSettings

__all__ = ["AUTO", "CANDIDATES", "Candidate", "candidate_requests"]

AUTO = "auto"
"""The name that stands for the race of all candidates."""


@dataclass(frozen=True)
class Candidate:
    """A model that is tried, with the settings that tell it from others of the same model.

    Attributes:
        sees_graph: whether the model reads edges; the best one that does not tells what the features alone give.
    """

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    sees_graph: bool = True


CANDIDATES: dict[str, Candidate] = {
    "mlp": Candidate("mlp", sees_graph=False),
    "gcn": Candidate("gcn"),
    "polyformer-legendre": Candidate("polyformer", {"basis": "legendre"}),
    "polyformer-chebyshev": Candidate("polyformer", {"basis": "chebyshev"}),
    "polyformer-monomial": Candidate("polyformer", {"basis": "monomial"}),
    "polyformer-labels": Candidate("polyformer", {"label_input": 0.5}),
    "gcn-tuned": Candidate("gcn-tuned"),
    "cascade": Candidate("cascade"),
    "cascade-labels": Candidate("cascade", {"label_input": 0.5}),
}
"""Candidates by name, cheapest first: those that the budget does not reach are not tried."""


def candidate_requests(request: RunRequest) -> dict[str, RunRequest]:
    """The request of every candidate: the user's, with the candidate's model and settings.

    Settings that the user asked for go to every candidate that has them, in place of the candidate's own; a candidate
    that would then equal an earlier one is left out.

    >>> list(candidate_requests(RunRequest(settings={"basis": "optimal"})))
    ['mlp', 'gcn', 'polyformer-legendre', 'polyformer-labels', 'gcn-tuned', 'cascade', 'cascade-labels']
    """
    asked = dict(request.settings or {})
    known = {name: _setting_names(candidate.model) for name, candidate in CANDIDATES.items()}
    for setting in asked:
        if not any(setting in names for names in known.values()):
            raise UnknownName(f"Unknown setting '{setting}'. {suggest(setting, set().union(*known.values()))}")
    requests: dict[str, RunRequest] = {}
    for name, candidate in CANDIDATES.items():
        own = {setting: value for setting, value in asked.items() if setting in known[name]}
        one = replace(request, model=candidate.model, settings={**candidate.settings, **own})
        if one not in requests.values():
            requests[name] = one
    return requests


def _setting_names(model: str) -> set[str]:
    kinds = (MODELS[model].settings_type, TrainingSettings)
    return {entry.name for kind in kinds for entry in fields(kind)}
