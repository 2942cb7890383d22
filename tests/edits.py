"""Changes of JSON files of ours as a person makes them who knows that the line 'checksum' has to go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load

from polyformer.files import RUN, run_identity, write_tensors

__all__ = ["adopt", "plain_json", "plain_result", "rewrite_json"]


def plain_json(path: Path) -> dict[str, Any]:
    """What the file says, without the hash of itself."""
    content: dict[str, Any] = json.loads(path.read_text())
    content.pop("checksum", None)
    return content


def plain_result(path: Path) -> dict[str, Any]:
    """What ``result.json`` says of a run, without the hashes that tie the file to its run."""
    return {name: value for name, value in plain_json(path).items() if name not in (RUN, "history")}


def rewrite_json(path: Path, content: dict[str, Any] | None = None, **changes: Any) -> None:
    """Write a file again, with other content or with changes of what it says, and without the hash of itself."""
    path.write_text(json.dumps((plain_json(path) if content is None else content) | changes))


def adopt(run: Path) -> None:
    """Let the files of a run directory be those of its ``config.json``, whatever stands there, as an attacker does."""
    owner = {RUN: run_identity(run)}
    if (run / "result.json").is_file():
        rewrite_json(run / "result.json", **owner)
    for path in (run / "model.safetensors", run / "labels.safetensors", run / "checkpoint" / "state.safetensors"):
        if path.is_file():
            data = path.read_bytes()
            header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            about = json.loads(json.loads(header["__metadata__"]["polyformer"])["about"])
            write_tensors(path, load(data), about | owner)
