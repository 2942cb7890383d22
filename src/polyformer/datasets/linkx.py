from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polyformer.datasets.base import Counts
from polyformer.datasets.public_files import Contents, PublicDataset
from polyformer.datasets.sources import RemoteFile
from polyformer.files import GET_AGAIN, reading
from polyformer.formats.number_files import read_mat, read_number_table
from polyformer.formats.pickles import load_object_array
from polyformer.graph import Graph
from polyformer.splits import Split

__all__ = ["POKEC", "TWITCH_GAMERS", "Pokec", "TwitchGamers"]

_CITATION = "Lim et al., Large scale learning on non-homophilous graphs, NeurIPS 2021"
_SPLITS = "https://github.com/CUAI/Non-Homophily-Large-Scale/raw/master/data/splits"
_DEAD = "The public links to its files no longer work, so it cannot be downloaded."


@dataclass(frozen=True, eq=False)
class TwitchGamers(PublicDataset):
    """Streamers who follow each other: does a channel carry mature content? Five fixed splits 50/25/25.

    ``feat.csv`` has the columns views, mature (the label), life_time, created_at, updated_at, numeric_id,
    dead_account, language, affiliate. As in LINKX, dates are read as numbers (2019-01-31 is 20190131), languages
    are numbered in order of appearance, and each of the seven columns is standardised.
    """

    def read(self, paths: Mapping[str, Path]) -> Contents:
        table, edge_table, split_file = (paths[file.path] for file in self.files)
        features, labels = _read_streamers(table)
        edges = read_number_table(edge_table, np.int64, header=True)
        graph = Graph(edges.T, features, len(labels))
        return Contents(graph, labels, {"fixed": _read_splits(split_file)}, listed_edges=len(edges))


@dataclass(frozen=True, eq=False)
class Pokec(PublicDataset):
    """A Slovak social network: friends, 65 profile features, gender as the label (-1 if not stated). Five splits."""

    def read(self, paths: Mapping[str, Path]) -> Contents:
        mat, split_file = (paths[file.path] for file in self.files)
        arrays = read_mat(mat, ["edge_index", "node_feat", "label", "num_nodes"])
        with reading(mat, GET_AGAIN):
            labels = np.asarray(arrays["label"]).ravel().astype(np.int64)
            num_nodes = int(np.asarray(arrays["num_nodes"]).item())
        edges = arrays["edge_index"]
        graph = Graph(edges, arrays["node_feat"], num_nodes)
        return Contents(graph, labels, {"fixed": _read_splits(split_file)}, listed_edges=edges.shape[1])


def _read_streamers(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(N, 7) standardised features and (N,) labels, in the order of ``numeric_id``, which the edges refer to."""
    from pyarrow import compute, csv

    dates = csv.ConvertOptions(column_types={"created_at": "string", "updated_at": "string"})
    with reading(path, GET_AGAIN):
        table = csv.read_csv(str(path), convert_options=dates)
        order = np.argsort(table["numeric_id"].to_numpy(), kind="stable")
        labels = table["mature"].to_numpy().astype(np.int64)
        columns = []
        for name in table.column_names:
            column = table[name]
            if name in ("numeric_id", "mature"):
                continue
            if name in ("created_at", "updated_at"):
                column = compute.replace_substring(column, "-", "").cast("int64")
            elif name == "language":
                column = column.combine_chunks().dictionary_encode().indices
            columns.append(column.to_numpy().astype(np.float64))
        features = np.stack(columns, axis=1)
        spread = features.std(axis=0, ddof=1)
        features = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return features[order].astype(np.float32), labels[order]


def _read_splits(path: Path) -> Sequence[Split]:
    """Five dictionaries of node ids, ``train``, ``valid`` and ``test``, in a pickled array."""
    entries = load_object_array(path)
    with reading(path, GET_AGAIN):
        return [
            Split(*(np.sort(np.asarray(entry[part], np.int64)) for part in ("train", "valid", "test")))
            for entry in entries
        ]


TWITCH_GAMERS = TwitchGamers(
    name="twitch-gamers",
    folder="twitch-gamers",
    files=(
        RemoteFile("raw/twitch-gamer_feat.csv", also=("raw/large_twitch_features.csv",)),
        RemoteFile("raw/twitch-gamer_edges.csv", also=("raw/large_twitch_edges.csv",)),
        RemoteFile(
            "raw/twitch-gamer-splits.npy",
            f"{_SPLITS}/twitch-gamer-splits.npy",
            also=("raw/twitch-gamers-splits.npy",),
        ),
    ),
    citation=f"{_CITATION}; Rozemberczki and Sarkar, Twitch Gamers, 2021",
    counts=Counts(nodes=168_114, edges=6_797_557, features=7, classes=2, listed=6_797_557),
    protocols=("fixed", "uniform"),
    advice=(
        f"{_DEAD} SNAP's twitch_gamers.zip has the same two tables, large_twitch_features.csv and "
        f"large_twitch_edges.csv (these names will do), and {_SPLITS}/twitch-gamer-splits.npy the splits."
    ),
)

POKEC = Pokec(
    name="pokec",
    folder="pokec",
    files=(RemoteFile("raw/pokec.mat"), RemoteFile("raw/pokec-splits.npy")),
    citation=f"{_CITATION}; Leskovec and Krevl, SNAP datasets, 2014",
    counts=Counts(nodes=1_632_803, edges=22_301_964, features=65, classes=2, listed=30_622_564),
    protocols=("fixed", "uniform"),
    advice=f"{_DEAD} Both files belong to the LINKX collection (github.com/CUAI/Non-Homophily-Large-Scale).",
)
