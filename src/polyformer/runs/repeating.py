"""How to repeat a run, and what may differ when it goes on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from polyformer.errors import InvalidParameter, PolyformerError
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
    try:
        defaults = RunRequest(request.data, request.model, preset=preset).resolve_settings()
    except PolyformerError:  # a preset file that is gone since: all that differs from the defaults is named
        defaults = RunRequest(request.data, request.model).resolve_settings()
    for name, value in (request.settings or {}).items():
        if value != defaults.get(name) and not isinstance(value, dict):
            parts += ["--set", f"{name}={value}"]
    return shlex.join(parts)


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
