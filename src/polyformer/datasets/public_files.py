"""A data set of public files: find or download them, read them, verify their counts, split the nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.datasets.base import Counts, Dataset
from polyformer.datasets.download import check_recorded, download, extract
from polyformer.datasets.sources import RemoteFile, is_offline, locate
from polyformer.errors import DataNotFound, DownloadFailed, FileCorrupt
from polyformer.graph import Graph
from polyformer.reporter import SILENT, Reporter
from polyformer.splits import BALANCED_SEEDS, Split, balanced_split, uniform_split
from polyformer.tasks import Task
from polyformer.user_cache import cache_root

__all__ = ["UNIFORM_SEEDS", "Contents", "PublicDataset", "check_counts", "draw_splits"]

UNIFORM_SEEDS = tuple(range(10))


@dataclass(frozen=True, eq=False)
class Contents:
    """The content of the files of a data set.

    ``splits`` holds the splits of the files, by protocol; ``listed_edges`` is the number of edges that the file lists.
    """

    graph: Graph
    labels: np.ndarray
    splits: Mapping[str, Sequence[Split]] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    ids: np.ndarray | None = None
    listed_edges: int | None = None


@dataclass(frozen=True, eq=False)
class PublicDataset(Dataset):
    """A member of a family of public data sets; a family says how its files are read.

    Attributes:
        folder: the name of its folder in a data root.
        files: the files that must be there.
        archive: a zip that holds all the files, if they are published as one.
        advice: one or two sentences for a user who cannot download the files.
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
        """Read the files, which are given by their ``RemoteFile.path``."""

    def load(self, root: Path | None, protocol: str, *, reporter: Reporter = SILENT, **options: Any) -> Task:
        """Find or fetch the files, read them, verify the published counts and draw the splits."""
        paths = self.fetch(root, reporter)
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
            place = first.rsplit("/", 1)[0] if len(missing) > 1 else first
            hashed = all(file.sha256 is not None for file in (missing if self.archive is None else [self.archive]))
            return f"downloaded on first use from {place}" + ("" if hashed else " (no hash of it is known)")
        return self._where_to_put(missing)

    def fetch(self, root: Path | None, reporter: Reporter = SILENT) -> dict[str, Path]:
        """The files on this machine; missing files that are public are downloaded into the cache."""
        located = self._located(root)
        missing = self._missing(located)
        if missing:
            self._provide(missing, root, reporter)
            located = self._located(root)
        paths = {name: path for name, path in located.items() if path is not None}
        for path in paths.values():
            if path.is_relative_to(cache_root()):  # files in a data root are the user's own
                check_recorded(path)
        return paths

    def _provide(self, missing: Sequence[RemoteFile], root: Path | None, reporter: Reporter) -> None:
        """Unpack or download the missing files into the cache."""
        folder = cache_root() / self.folder
        archive = None if self.archive is None else locate(self.folder, self.archive, root)
        if archive is not None:
            extract(archive, folder, [file.path for file in missing], reporter)
            return
        if is_offline() or not self._downloadable(missing):
            raise DataNotFound(f"The data set '{self.name}' is not on this machine. {self._where_to_put(missing)}")
        try:
            for file in missing if self.archive is None else [self.archive]:
                assert file.url is not None
                if file.sha256 is None:
                    reporter.say(f"No hash of {file.url} is known: it is checked by the published counts alone.")
                download(file.url, folder / file.path, file.sha256, reporter)
        except DownloadFailed as error:
            raise DownloadFailed(f"{error} {self.advice}".strip()) from None
        if self.archive is not None:
            extract(folder / self.archive.path, folder, [file.path for file in missing], reporter)
            (folder / self.archive.path).unlink()

    def _located(self, root: Path | None) -> dict[str, Path | None]:
        return {file.path: locate(self.folder, file, root) for file in self.files}

    def _missing(self, located: Mapping[str, Path | None]) -> list[RemoteFile]:
        return [file for file in self.files if located[file.path] is None]

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
    """The splits of the files, or drawn ones: ``balanced`` as in the paper's runs, ``uniform`` 60/20/20, ``none``."""
    if protocol in contents.splits:
        return contents.splits[protocol]
    if protocol == "balanced":
        return [balanced_split(contents.labels, seed) for seed in BALANCED_SEEDS]
    if protocol == "uniform":
        return [uniform_split(contents.labels, seed) for seed in UNIFORM_SEEDS]
    if protocol == "none":
        return []
    raise AssertionError(f"no way to draw '{protocol}'")


def check_counts(dataset: PublicDataset, contents: Contents, place: Path) -> None:
    """Refuse files whose counts differ from the published ones; the message says which."""
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
