"""A data set that comes as public files: found or fetched, read, counted, split."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets.base import Counts, Dataset
from polyformer.datasets.download import check_recorded, download, extract
from polyformer.datasets.sources import RemoteFile, cache_root, is_offline, locate
from polyformer.errors import DataNotFound, DownloadFailed, FileCorrupt
from polyformer.graph import Graph
from polyformer.progress import Stages
from polyformer.splits import BALANCED_SEEDS, Split, balanced_split, uniform_split
from polyformer.tasks import Task

__all__ = ["UNIFORM_SEEDS", "Contents", "PublishedDataset", "check_counts", "draw_splits"]

UNIFORM_SEEDS = tuple(range(10))


@dataclass(frozen=True, eq=False)
class Contents:
    """What the files of a data set say.

    ``splits`` holds those that come with the files, by protocol; ``listed_edges`` counts the edges as the file
    lists them.
    """

    graph: Graph
    labels: np.ndarray
    splits: Mapping[str, Sequence[Split]] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    ids: np.ndarray | None = None
    listed_edges: int | None = None


@dataclass(frozen=True, eq=False)
class PublishedDataset(Dataset):
    """A member of a family of public data sets; a family says how its files are read.

    Attributes:
        folder: the name of its folder in a data root.
        files: what must be there.
        archive: a zip that holds all the files, where they are published so.
        advice: one or two sentences for a user who has not got the files and cannot download them.
    """

    name: str
    folder: str
    files: tuple[RemoteFile, ...]
    citation: str
    counts: Counts
    protocols: tuple[str, ...]
    metric: str = "accuracy"
    archive: RemoteFile | None = None
    advice: str = ""

    @abstractmethod
    def read(self, paths: Mapping[str, Path]) -> Contents:
        """Make sense of the files, given by their ``RemoteFile.path``."""

    def load(self, root: Path | None, protocol: str, *, progress: Stages | None = None, **options: Any) -> Task:
        """Find or fetch the files, read them, verify the published counts and draw the splits."""
        paths = self.fetch(root, progress)
        contents = self.read(paths)
        check_counts(self, contents, next(iter(paths.values())).parent)
        splits = draw_splits(protocol, contents)
        return Task(
            self.name,
            contents.graph,
            contents.labels,
            splits,
            protocol,
            self.metric if splits else "",
            contents.class_names,
            contents.ids,
        )

    def status(self, root: Path | None) -> str:
        """The folder of the files, or how to get them."""
        located = self._located(root)
        missing = self._missing(located)
        if not missing:
            return str(next(path for path in located.values() if path is not None).parent)
        if self._downloadable(missing):
            first = str(missing[0].url if self.archive is None else self.archive.url)
            return f"downloaded on first use from {first.rsplit('/', 1)[0] if len(missing) > 1 else first}"
        return self._where_to_put(missing)

    def fetch(self, root: Path | None, progress: Stages | None = None) -> dict[str, Path]:
        """The files on this machine, downloaded into the cache where they are missing and public."""
        located = self._located(root)
        missing = self._missing(located)
        if missing:
            self._provide(missing, root, progress)
            located = self._located(root)
        paths = {name: path for name, path in located.items() if path is not None}
        for path in paths.values():
            if path.is_relative_to(cache_root()):  # what lies in a data root is the user's own
                check_recorded(path)
        return paths

    def _provide(self, missing: Sequence[RemoteFile], root: Path | None, progress: Stages | None) -> None:
        """Unpack or download what is missing into the cache."""
        folder = cache_root() / self.folder
        archive = None if self.archive is None else locate(self.folder, self.archive, root)
        if archive is not None:
            extract(archive, folder, [file.path for file in missing], progress)
            return
        if is_offline() or not self._downloadable(missing):
            raise DataNotFound(f"The data set '{self.name}' is not on this machine. {self._where_to_put(missing)}")
        try:
            for file in missing if self.archive is None else [self.archive]:
                assert file.url is not None
                download(file.url, folder / file.path, file.sha256, progress)
        except DownloadFailed as error:
            raise DownloadFailed(f"{error} {self.advice}".strip()) from None
        if self.archive is not None:
            extract(folder / self.archive.path, folder, [file.path for file in missing], progress)
            (folder / self.archive.path).unlink()

    def _located(self, root: Path | None) -> dict[str, Path | None]:
        return {file.path: locate(self.folder, file, root) for file in self.files}

    def _missing(self, found: Mapping[str, Path | None]) -> list[RemoteFile]:
        return [file for file in self.files if found[file.path] is None]

    def _downloadable(self, missing: Sequence[RemoteFile]) -> bool:
        return self.archive is not None or all(file.url is not None for file in missing)

    def _where_to_put(self, missing: Sequence[RemoteFile]) -> str:
        names = ", ".join(f"'{file.path}'" for file in missing)
        place = cache_root() / self.folder
        return (
            f"{self.advice} Put {names} in '{place}', or in the folder '{self.folder}' of --data-root or of "
            f"$POLYFORMER_DATA."
        ).strip()


def draw_splits(protocol: str, contents: Contents) -> Sequence[Split]:
    """Splits that come with the files, or drawn: ``balanced`` as the paper's runs, ``uniform`` 60/20/20, ``none``."""
    if protocol in contents.splits:
        return contents.splits[protocol]
    if protocol == "balanced":
        return [balanced_split(contents.labels, seed) for seed in BALANCED_SEEDS]
    if protocol == "uniform":
        return [uniform_split(contents.labels, seed) for seed in UNIFORM_SEEDS]
    if protocol == "none":
        return []
    raise AssertionError(f"no way to draw '{protocol}'")


def check_counts(dataset: PublishedDataset, contents: Contents, place: Path) -> None:
    """Refuse files whose sizes are not the published ones, saying what differs."""
    counts, graph = dataset.counts, contents.graph
    classes = 0 if contents.labels.dtype.kind == "f" else int(contents.labels.max(initial=-1)) + 1
    if counts.listed is not None and contents.listed_edges is not None:
        edges = ("edges listed", counts.listed, contents.listed_edges)
    else:
        edges = ("edges", counts.edges, graph.num_edges)
    rows = [
        ("nodes", counts.nodes, graph.num_nodes),
        edges,
        ("features", counts.features, graph.num_features),
        ("classes", counts.classes, classes),
    ]
    wrong = [f"{actual:,} {what} instead of {expected:,}" for what, expected, actual in rows if actual != expected]
    if wrong:
        raise FileCorrupt(
            f"The files of '{dataset.name}' in '{place}' are not the published ones: {', '.join(wrong)}. "
            f"Get them again."
        )
