"""Where the files of a data set are: a data root, the user's cache, or a public address.

Files are laid out as ``FOLDER/raw/FILE``, the layout of a PyTorch Geometric root, and looked for in the root that was
given, then in ``$POLYFORMER_DATA``, then in the cache. Only the cache is ever written to.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from polyformer.errors import DataNotFound

__all__ = [
    "PRECOMPUTED_VARIABLE",
    "RemoteFile",
    "cache_root",
    "data_roots",
    "is_offline",
    "locate",
    "precomputed_root",
    "processed_root",
]

PRECOMPUTED_VARIABLE = "POLYFORMER_PRECOMPUTED"


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set.

    Attributes:
        path: where it is inside the data set's folder, e.g. ``raw/tolokers.npz``.
        url: where it can be downloaded; None if nowhere (any more).
        sha256: the hash of the public file. A download must have it; a file that the user put in place need not, as
            re-encoded copies with the same content are common: those are verified by their counts.
        also: other names under which a file with the same content may lie.
    """

    path: str
    url: str | None = None
    sha256: str | None = None
    also: tuple[str, ...] = ()


def cache_root() -> Path:
    """Where downloads go: ``$XDG_CACHE_HOME/polyformer/datasets``, by default under ``~/.cache``."""
    return _user_cache() / "datasets"


def processed_root() -> Path:
    """Where graph directories made from raw files too large for memory go."""
    return _user_cache() / "processed"


def precomputed_root() -> Path:
    """Where eigenvectors and encodings of graphs go, so that they are computed once; the variable can name a place."""
    place = os.environ.get(PRECOMPUTED_VARIABLE)
    return Path(place) if place else _user_cache() / "precomputed"


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "polyformer"


def is_offline() -> bool:
    """Whether the user forbids downloads by ``POLYFORMER_OFFLINE=1``."""
    return os.environ.get("POLYFORMER_OFFLINE", "").lower() not in ("", "0", "false")


def data_roots(root: Path | None) -> list[Path]:
    """Every place to look in, the first that has a file wins."""
    if root is not None and not root.is_dir():
        raise DataNotFound(f"There is no data root '{root}'. Check the path, or leave it out to use the cache.")
    environment = os.environ.get("POLYFORMER_DATA")
    places = [root, Path(environment) if environment else None, cache_root()]
    return [place for place in places if place is not None]


def locate(folder: str, file: RemoteFile, root: Path | None) -> Path | None:
    """The file on this machine, or None."""
    for place in data_roots(root):
        for name in _matching(place, folder):
            for path in (file.path, *file.also):
                candidate = place / name / path
                if candidate.is_file():
                    return candidate
    return None


def _matching(place: Path, folder: str) -> list[str]:
    """Folders of that name; ``ogbn_arxiv`` and ``CiteSeer`` count for ``ogbn-arxiv`` and ``citeseer``."""
    try:
        names = os.listdir(place)
    except OSError:
        return []
    same = [name for name in names if _plain(name) == _plain(folder)]
    return sorted(same, key=lambda name: (name != folder, name))


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
