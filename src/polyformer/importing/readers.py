"""Choose the reader of a path."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from polyformer.errors import DataNotFound, InvalidData
from polyformer.importing.array_sources import read_npz, read_pt
from polyformer.importing.edges import EdgeReader, TableEdges
from polyformer.importing.identifiers import DenseIds, NodeIds
from polyformer.importing.matrix_sources import MATRIX_READERS, is_planetoid, read_planetoid_folder
from polyformer.importing.node_table import NodeTable
from polyformer.importing.ogb_source import is_ogb, read_ogb
from polyformer.importing.options import BY_TIME, ImportOptions
from polyformer.importing.other_formats import advice_for
from polyformer.importing.raw_pairs import RAW_ENDINGS, RawPairs
from polyformer.importing.rows import CSV_ENDINGS
from polyformer.importing.source import Source, check_splits
from polyformer.importing.tables import PARQUET_ENDINGS, open_table

__all__ = ["is_native", "read_source"]

_TABLES = (*PARQUET_ENDINGS, *CSV_ENDINGS)
_EDGE_NAMES = ("edges", "edge", "edgelist", "edge_list", "links")
_NODE_NAMES = ("nodes", "node", "vertices")
_WHOLE_FILES = (".npz", ".pt", ".pth", *MATRIX_READERS)


def is_native(path: Path) -> bool:
    """Whether a path is a graph directory."""
    return (path / "manifest.json").is_file()


def read_source(path: Path, options: ImportOptions) -> Source:
    """Open a folder or file in any format but a graph directory; reads all but edges and features."""
    source = _read(path, options)
    return replace(source, splits=None) if options.split_column == "" and options.split_by is None else source


def _read(path: Path, options: ImportOptions) -> Source:
    if not path.exists():
        raise DataNotFound(f"There is nothing at '{path}'. Check the path.")
    if path.is_dir() and options.edges is None and is_ogb(path):
        return read_ogb(path, options)
    name = path.name.lower()
    of_matrix = next((read for ending, read in MATRIX_READERS.items() if name.endswith(ending)), None)
    if path.is_dir() and options.edges is None and is_planetoid(path):
        source = read_planetoid_folder(path, options)
    elif path.is_file() and of_matrix is not None:
        source = of_matrix(path, options)
    elif path.is_file() and name.endswith(".npz"):
        source = read_npz(path, options)
    elif path.is_file() and name.endswith((".pt", ".pth")):
        source = read_pt(path, options)
    elif path.is_dir() or name.endswith((*_TABLES, *RAW_ENDINGS)):
        source = _read_tables(path, options)
    else:
        known = ", ".join((*_TABLES, *_WHOLE_FILES, *RAW_ENDINGS))
        advice = advice_for(name) or f"Give a folder of tables, or a file in {known}."
        raise InvalidData(f"'{path}' is of no format that can be read. {advice}")
    if options.split_column != "" and options.protocol != "none":
        check_splits(source)
    return source


def _read_tables(path: Path, options: ImportOptions) -> Source:
    edges_path, nodes_path = _find_tables(path, options)
    nodes, notes = None, tuple[str, ...]()
    if nodes_path is not None:
        table = open_table(nodes_path, options.encoding, options.decimal)
        nodes = NodeTable(table, replace(options, decimal=table.decimal_mark))
        notes = (*table.notes, *nodes.notes)
    edges = _open_edges(edges_path, options, nodes)
    name = (path if path.is_dir() else edges_path).name.split(".")[0]
    if nodes is None:
        ids: NodeIds | None = None if options.num_nodes is None else DenseIds(options.num_nodes)
        notes = (*edges.notes, *_unread_tables(path, edges_path))
        return Source("tables", name, edges, ids, matched=edges.matched, notes=notes)
    splits = None if nodes.split is None else (nodes.split,)
    matched = (*edges.matched, *nodes.matched)
    protocol = "fixed" if options.split_by is None else BY_TIME
    return Source(
        "tables",
        name,
        edges,
        nodes.ids,
        nodes.features,
        nodes.labels,
        splits,
        matched=matched,
        notes=(*notes, *edges.notes),
        preprocessing=nodes.preprocessing,
        protocol=protocol,
    )


def _open_edges(path: Path, options: ImportOptions, nodes: NodeTable | None) -> EdgeReader:
    if path.is_dir() or path.name.lower().endswith(_TABLES):
        table = open_table(path, options.encoding, options.decimal)
        return TableEdges(table, options, None if nodes is None else nodes.kind)
    if not path.name.lower().endswith(RAW_ENDINGS):
        known = ", ".join((*_TABLES, *RAW_ENDINGS))
        raise InvalidData(f"'{path}' is no edge list that can be read: its name must end in one of {known}.")
    if nodes is not None and nodes.kind == "string":
        raise InvalidData(f"'{path}' holds integers, but the ids in '{nodes.name}' are strings. Use the same in both.")
    return RawPairs(path)


def _find_tables(path: Path, options: ImportOptions) -> tuple[Path, Path | None]:
    folder = path if path.is_dir() else path.parent
    nodes = None if options.nodes is None else _placed(folder, options.nodes)
    if path.is_file():
        return (path if options.edges is None else _placed(folder, options.edges)), nodes
    if nodes is None:
        nodes = _only(folder, _NODE_NAMES, _TABLES, "--nodes")
    edges = (
        _only(folder, _EDGE_NAMES, (*_TABLES, *RAW_ENDINGS), "--edges")
        if options.edges is None
        else _placed(folder, options.edges)
    )
    if edges is None:
        raise DataNotFound(
            f"'{folder}' holds no table of edges (edges.csv or edges.parquet, say). {_advice_for_folder(folder)}"
        )
    return edges, nodes


def _unread_tables(path: Path, edges: Path) -> list[str]:
    """A note on tables beside the edges, if none of them was taken as the node table."""
    places = sorted(path.iterdir()) if path.is_dir() else []
    others = [place.name for place in places if place != edges and place.name.lower().endswith(_TABLES)]
    return [f"'{others[0]}' was not read. If it has a row for each node, name it with --nodes."] if others else []


def _advice_for_folder(folder: Path) -> str:
    """What to do about a folder without a table of edges."""
    names = sorted(place.name for place in folder.iterdir())
    inside = [place for place in (*sorted(folder.iterdir()), *sorted(folder.glob("raw/*"))) if place.is_file()]
    whole = [place for place in inside if place.name.lower().endswith(_WHOLE_FILES)]
    if whole:
        return f"If '{whole[0].relative_to(folder)}' is the graph, name that file: '{whole[0]}'."
    contents = f"It holds: {', '.join(names[:10]) or 'nothing'}."
    if any(name.lower().endswith(_TABLES) for name in names):
        return f"{contents} Name it with --edges."
    advice = next((f"Of '{name}': {text}" for name in names if (text := advice_for(name))), "Name it with --edges.")
    return f"{contents} {advice}"


def _placed(folder: Path, given: Path) -> Path:
    """The path of a file that the user named: the path itself, else a path inside the source folder."""
    return given if given.exists() or not (folder / given).exists() else folder / given


def _only(folder: Path, names: tuple[str, ...], endings: tuple[str, ...], option: str) -> Path | None:
    """The table with one of these names; else the only table whose name ends so, such as ``shop_edges.csv``."""
    usual = {name + ending for name in names for ending in endings}
    tables = sorted(place for place in folder.iterdir() if place.is_dir() or place.name.lower().endswith(endings))
    exact = [place for place in tables if place.name.lower() in (names if place.is_dir() else usual)]
    close = [place for place in tables if re.split(r"[_\- ]", place.name.lower())[-1] in usual]
    candidates = exact or close
    if len(candidates) > 1:
        raise InvalidData(
            f"Both '{candidates[0].name}' and '{candidates[1].name}' of '{folder}' could be meant. "
            f"Choose with {option}."
        )
    return candidates[0] if candidates else None
