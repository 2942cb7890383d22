"""Changes of JSON files of ours as a person makes them who knows that the line 'checksum' has to go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["plain_json", "rewrite_json"]


def plain_json(path: Path) -> dict[str, Any]:
    """What the file says, without the hash of itself."""
    content: dict[str, Any] = json.loads(path.read_text())
    content.pop("checksum", None)
    return content


def rewrite_json(path: Path, content: dict[str, Any] | None = None, **changes: Any) -> None:
    """Write a file again, with other content or with changes of what it says, and without the hash of itself."""
    path.write_text(json.dumps((plain_json(path) if content is None else content) | changes))
