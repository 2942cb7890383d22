"""Where the files of a data set are: a data root, the user's cache, or a public address.

Files are laid out as ``FOLDER/raw/FILE``, the layout of a PyTorch Geometric root, and looked for in the root that was
given, then in ``$POLYFORMER_DATA``, then in the cache. Only the cache is ever written to.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from polyformer.errors import DataNotFound
from polyformer.user_cache import cache_root

__all__ = [
    "RemoteFile",
    "data_roots",
    "is_offline",
    "locate",
]


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set.

    Attributes:
        path: where it is inside the data set's folder, e.g. ``raw/tolokers.npz``.
        url: address of the file; None if it cannot be downloaded.
        sha256: the hash of the public file. A download must have it. A file of the user's may have another hash, as
            re-encoded copies with the same content are common; its counts are verified instead.
        also: other names of files with the same content.
    """

    path: str
    url: str | None = None
    sha256: str | None = None
    also: tuple[str, ...] = ()


def is_offline() -> bool:
    """Whether the user forbids downloads by ``POLYFORMER_OFFLINE=1``."""
    return os.environ.get("POLYFORMER_OFFLINE", "").lower() not in ("", "0", "false")


def data_roots(root: Path | None) -> list[Path]:
    """The places to look for a file; the first that has the file is used."""
    if root is not None and not root.is_dir():
        raise DataNotFound(f"There is no data root '{root}'. Check the path, or leave it out to use the cache.")
    environment = os.environ.get("POLYFORMER_DATA")
    places = [root, Path(environment) if environment else None, cache_root()]
    return [place for place in places if place is not None]


def locate(folder: str, file: RemoteFile, root: Path | None) -> Path | None:
    """The path of the file on this machine; None if it is not there."""
    for place in data_roots(root):
        for name in _matching(place, folder):
            for path in (file.path, *file.also):
                candidate = place / name / path
                if candidate.is_file():
                    return candidate
    return None


def _matching(place: Path, folder: str) -> list[str]:
    """Folders of this name, also with other cases and underscores: ``CiteSeer`` and ``ogbn_arxiv`` are found."""
    try:
        names = os.listdir(place)
    except OSError:
        return []
    same = [name for name in names if _plain(name) == _plain(folder)]
    return sorted(same, key=lambda name: (name != folder, name))


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
