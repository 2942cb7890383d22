"""Data sets by name: each gives a graph and its task, with a citation.

To add a data set: write its file and add its line to ``DATASETS``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polyformer.columns import Column
from polyformer.datasets.base import Counts, Dataset
from polyformer.errors import DataNotFound, UnknownName
from polyformer.files import is_there
from polyformer.registry import Registry, check_options, parse_spec
from polyformer.reporter import SILENT, Reporter
from polyformer.tasks import Task

__all__ = ["DATASETS", "Counts", "Dataset", "data_name", "load_dataset", "load_source"]

DATASETS: Registry[Dataset] = Registry(
    "data set",
    {
        "minefield": "polyformer.datasets.minefield:MINEFIELD",
        "citeseer": "polyformer.datasets.planetoid:CITESEER",
        "cora": "polyformer.datasets.planetoid:CORA",
        "pubmed": "polyformer.datasets.planetoid:PUBMED",
        "cs": "polyformer.datasets.gnn_benchmark:CS",
        "physics": "polyformer.datasets.gnn_benchmark:PHYSICS",
        "amazon-computers": "polyformer.datasets.gnn_benchmark:AMAZON_COMPUTERS",
        "amazon-photo": "polyformer.datasets.gnn_benchmark:AMAZON_PHOTO",
        "chameleon_filtered": "polyformer.datasets.heterophilous:CHAMELEON",
        "squirrel_filtered": "polyformer.datasets.heterophilous:SQUIRREL",
        "minesweeper": "polyformer.datasets.heterophilous:MINESWEEPER",
        "tolokers": "polyformer.datasets.heterophilous:TOLOKERS",
        "roman-empire": "polyformer.datasets.heterophilous:ROMAN_EMPIRE",
        "questions": "polyformer.datasets.heterophilous:QUESTIONS",
        "amazon-ratings": "polyformer.datasets.heterophilous:AMAZON_RATINGS",
        "twitch-gamers": "polyformer.datasets.linkx:TWITCH_GAMERS",
        "pokec": "polyformer.datasets.linkx:POKEC",
        "ogbn-arxiv": "polyformer.datasets.ogb:OGBN_ARXIV",
        "ogbn-papers100M": "polyformer.datasets.papers100m:OGBN_PAPERS100M",
        "ogbn-arxiv-graph": "polyformer.datasets.graphsaint:OGBN_ARXIV_GRAPH",
        "wordnet": "polyformer.datasets.gnn_benchmark:WORDNET",
        "web-google": "polyformer.datasets.web_google:WEB_GOOGLE",
        "2Dgrid": "polyformer.datasets.grid:GRID_2D",
        "generated-images": "polyformer.datasets.generated_images:GENERATED_IMAGES",
    },
)


def data_name(source: str) -> str:
    """The name of a data set without its options; a path as it is.

    >>> data_name("minefield:width=50"), data_name("graphs/2024-01-01T12:00")
    ('minefield', 'graphs/2024-01-01T12:00')
    """
    name = source.partition(":")[0].strip()
    return name if name in DATASETS else source


def load_dataset(
    name: str, root: str | Path | None = None, protocol: str | None = None, *, reporter: Reporter = SILENT
) -> Task:
    """Load a data set by name, with its options after a colon, or a graph of your own by its path.

    Args:
        name: e.g. ``"minefield"``, ``"minefield:width=50,height=50,seed=3"`` or ``"my_graph/"``, a graph directory or
            tables (see :func:`polyformer.importing.open_source`).
        root: folder to look for the files first; then come ``$POLYFORMER_DATA`` and the user's cache. Files that are in
            none of them are downloaded into the cache.
        protocol: name of the split protocol; by default the paper's.
        reporter: hears how far downloading and preparing the files is.

    Example:
        >>> task = load_dataset("minefield:width=20,height=10")
        >>> task.graph.num_nodes, task.num_classes, task.metric, len(task.splits)
        (200, 2, 'roc_auc', 10)
    """
    if data_name(name) not in DATASETS and is_there(name):
        return load_source(name, root, protocol, reporter=reporter)
    key, options = parse_spec(name)
    dataset = DATASETS[key]
    check_options("data set", key, options, dataset.options)
    place = None if root is None else Path(root)
    task = dataset.load(place, dataset.choose_protocol(protocol), reporter=reporter, **options)
    task.graph.published = True
    return task


def load_source(
    source: str,
    root: str | Path | None = None,
    protocol: str | None = None,
    *,
    reporter: Reporter = SILENT,
    applied: bool = False,
    held_out: bool = False,
    columns: tuple[Column, ...] | None = None,
) -> Task:
    """Load what the command line calls DATASET|PATH: a data set by name, a graph directory, or files of a graph.

    Args:
        protocol: name of the splits of a data set; for a path without splits, how to draw them.
        applied: whether a model is only applied to the graph, so that splits in the user's files do not matter.
        held_out: whether splits that an applied model's graph has are read all the same, because the model is shown
            labels, but none of validation and test nodes.
        columns: columns of another graph; the features of tables are read as theirs were.
        reporter: hears how far downloading and reading is, and what was taken as what in the user's own files.
    """
    if data_name(source) in DATASETS:
        return load_dataset(source, root, protocol, reporter=reporter)
    if not is_there(source):
        if "/" not in source and not source.startswith("."):
            DATASETS[source.partition(":")[0]]  # raises an error that names the nearest data set
        raise DataNotFound(f"There is no graph at '{source}'. Check the path.")
    from polyformer.importing import ImportOptions, open_source

    options = ImportOptions(columns=columns)
    if applied:
        options = replace(options, split_column=None if held_out else "", protocol="none")
    elif protocol not in (None, "fixed", "none"):
        options = replace(options, protocol=str(protocol))
    task = open_source(source, options, reporter)
    if protocol not in (None, task.protocol):
        raise UnknownName(
            f"'{source}' holds splits of the protocol '{task.protocol}'. Got '{protocol}'. Leave --protocol out."
        )
    return task
