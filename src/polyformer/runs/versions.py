"""The versions that a result depends on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from functools import cache
from pathlib import Path

from polyformer.version import __version__

__all__ = ["versions"]


def versions() -> dict[str, str]:
    """Versions of Python and of the packages; ``source`` is a hash of this package's own code, which changes between
    versions."""
    others = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "scipy")}
    return {"python": platform.python_version(), "polyformer": __version__, **others, "source": _source_digest()}


@cache
def _source_digest() -> str:
    digest, folder = hashlib.blake2b(digest_size=6), Path(__file__).parents[1]
    for path in sorted(path for ending in ("py", "cpp", "h", "csv") for path in folder.rglob(f"*.{ending}")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
