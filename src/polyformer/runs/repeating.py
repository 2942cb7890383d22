"""How to repeat a run, and what may differ when it goes on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from polyformer.errors import InvalidParameter, PolyformerError
from polyformer.models import MODELS
from polyformer.runs.default_settings import NEUTRAL_SETTINGS, alternatives_for
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run

__all__ = ["continued_request", "repeat_command"]

_CHANGEABLE = ("memory", "device", "data_root")
"""What a continued run may be given anew, because the result does not depend on it."""


def repeat_command(run: Run) -> str:
    """The command that repeats a run: settings that differ from the defaults, by name."""
    request, preset = run.request, run.preset
    parts = ["polyformer", "train", request.data, "--model", request.model]
    for name, value in (
        ("protocol", request.protocol),
        ("preset", preset),
        ("start-from", request.start_from),
    ):
        parts += [] if value is None else [f"--{name}", value]
    parts += ["--split", str(request.split), "--seed", str(request.seed)]
    for name, value in _settings_to_name(run).items():
        parts += ["--set", f"{name}={value}"]
    return shlex.join(parts)


def _settings_to_name(run: Run) -> dict[str, Any]:
    """The settings that a command must name to get them all.

    A run that tried settings tries them again. Any other run of a model that tries settings names one at least.
    """
    request, settings = run.request, run.request.settings or {}
    if run.trials:
        asked = {name: value for name, value in settings.items() if name in NEUTRAL_SETTINGS}
        usual = RunRequest(request.data, request.model).resolve_settings()
        declined = {} if any("label_input" in trial["settings"] for trial in run.trials) else {"label_input": 0}
        return {name: value for name, value in asked.items() if value != usual[name]} | declined
    try:
        plain = RunRequest(request.data, request.model, preset=run.preset)
        usual, fitting = plain.resolve_settings(), plain.resolve_settings(run.facts.train)
    except PolyformerError:  # a preset file that is gone since: all that differs from the defaults is named
        usual = fitting = RunRequest(request.data, request.model).resolve_settings()
    named = {
        name: value
        for name, value in settings.items()
        if (value != usual.get(name) or value != fitting.get(name)) and not isinstance(value, dict)
    }
    if named or run.preset is not None or not alternatives_for(MODELS[request.model], run.facts.train):
        return named
    return {"lr": settings["lr"]}


def continued_request(run: Run, asked: Mapping[str, Any], settings: Mapping[str, Any]) -> RunRequest:
    """The request of a run that goes on; what its result depends on must not differ from it.

    Args:
        asked: fields of :class:`RunRequest` that are asked for now.
        settings: settings that are asked for now.
    """
    request = run.request
    changes = {name: asked[name] for name in _CHANGEABLE if name in asked}
    stored = {**vars(request), "preset": run.preset}
    for name, value in {**asked, **settings}.items():
        if name in changes:
            continue
        before = (request.settings or {}).get(name, "nothing") if name in settings else stored[name]
        if value != before:
            raise InvalidParameter(
                f"The run '{run.path}' was started with {name}={before}. Got {value}. Leave it out or start a new run."
            )
    return replace(request, **changes)
