"""The folder ``polyformer`` of the user's cache, for files that can be made or fetched again."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["PRECOMPUTED_VARIABLE", "cache_root", "precomputed_root", "processed_root"]

PRECOMPUTED_VARIABLE = "POLYFORMER_PRECOMPUTED"
"""The environment variable that names another place for eigenvectors and encodings."""


def cache_root() -> Path:
    """The folder for downloads: ``$XDG_CACHE_HOME/polyformer/datasets``, by default under ``~/.cache``."""
    return _user_cache() / "datasets"


def processed_root() -> Path:
    """The folder for graph directories that were made from raw files too large for memory."""
    return _user_cache() / "processed"


def precomputed_root() -> Path:
    """The folder for eigenvectors and encodings of graphs, which are computed once; the variable can name another."""
    place = os.environ.get(PRECOMPUTED_VARIABLE)
    return Path(place) if place else _user_cache() / "precomputed"


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "polyformer"
