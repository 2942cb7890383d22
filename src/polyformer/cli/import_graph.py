from __future__ import annotations

from pathlib import Path

import typer

from polyformer.cli.display import Display

__all__ = ["import_command"]


def import_command(
    source: Path = typer.Argument(
        ..., metavar="SOURCE", help="Tables, a folder of them, npz, mat, mtx, pt, raw file, or synthetic:…"
    ),
    destination: Path = typer.Argument(..., metavar="DEST", help="The graph directory to write."),
    edges: Path | None = typer.Option(None, help="The edge table, if SOURCE does not hold it under a usual name."),
    nodes: Path | None = typer.Option(None, help="The node table, if SOURCE does not hold it under a usual name."),
    source_column: str | None = typer.Option(None, help="Column of the edge table: one end. [default: by name]"),
    target_column: str | None = typer.Option(None, help="Column of the edge table: the other end."),
    weight_column: str | None = typer.Option(None, help="Column of the edge table: weight; '' for none."),
    id_column: str | None = typer.Option(None, help="Column of the node table: node id."),
    label_column: str | None = typer.Option(None, help="Column of the node table: class or value; '' for none."),
    split_column: str | None = typer.Option(None, help="Column of the node table: train, val, test; '' for none."),
    features: str | None = typer.Option(None, metavar="A,B,…", help="Feature columns. [default: all others]"),
    categories: str | None = typer.Option(None, metavar="A,B,…", help="Columns to encode one-hot whatever their type."),
    like: Path | None = typer.Option(
        None, metavar="RUN", help="Read the same feature columns and categories as this run."
    ),
    missing: str = typer.Option("fill", help="Missing numbers: fill (median, and a column that marks them) or refuse."),
    split_by: str | None = typer.Option(
        None, metavar="COLUMN", help="Numbers or dates: the oldest 60 % of the nodes train, the newest 20 % test."
    ),
    id_type: str = typer.Option("auto", help="auto, integer or string."),
    label_kind: str = typer.Option("auto", help="auto, classes or values (regression)."),
    metric: str = typer.Option(
        "", help="Metric to select and report by, e.g. balanced_accuracy or mae. [default: accuracy, or r2 for values]"
    ),
    protocol: str = typer.Option("uniform", help="How to draw splits if SOURCE has none: uniform, balanced, none."),
    num_splits: int = typer.Option(1, help="How many splits to draw."),
    seed: int = typer.Option(0, help="Seed for drawing the splits."),
    encoding: str = typer.Option(
        "", help="Encoding of CSV files, e.g. latin-1. [default: by byte-order mark, else UTF-8]"
    ),
    decimal: str = typer.Option("", metavar=".|,", help="Decimal mark in CSV files. [default: recognised]"),
    memory: str = typer.Option("2GiB", help="Use at most this much memory."),
    json_only: bool = typer.Option(False, "--json", help="Print a summary as JSON on stdout and nothing else there."),
) -> None:
    """Turn a graph of your own into a graph directory, in bounded memory.

    Reads CSV and Parquet tables, npz files (of heterophilous-graphs, gnn-benchmark or scipy), MATLAB and Matrix Market
    files, PyTorch Geometric files, raw int32 pairs, and folders of OGB and Planetoid. What was taken as what is shown.
    Smaller graphs need no import: `polyformer train` reads the same formats.

    Examples:

    - `polyformer import my_tables/ my_graph/` — edges.csv (source, target) and nodes.csv (id, label, features)

    - `polyformer import follows.parquet my_graph/ --nodes users.parquet --id-column user --label-column country`

    - `polyformer import new_users/ new_graph/ --id-column user --like runs/my-run`, then
      `polyformer predict runs/my-run new_graph/ --out predictions.parquet`

    - `polyformer import synthetic:nodes=1e6,edges=15e6,features=64,classes=40,seed=1 made_up/` — a graph made up on the
    spot, of any size; it also takes labelled=, homophily=, noise= and dtype=, and no option below but --json
    """
    from dataclasses import asdict

    from polyformer.errors import InvalidParameter
    from polyformer.importing import ImportOptions, import_graph
    from polyformer.machine import parse_bytes
    from polyformer.prediction import trained_columns

    display = Display(json_only)
    if like is not None and (features or categories):
        raise InvalidParameter("'--like' tells which columns are features. Leave out --features and --categories.")
    options = ImportOptions(
        edges=edges,
        nodes=nodes,
        source_column=source_column,
        target_column=target_column,
        weight_column=weight_column,
        id_column=id_column,
        label_column=label_column,
        split_column=split_column,
        features=None if features is None else _names(features),
        categories=() if categories is None else _names(categories),
        columns=None if like is None else trained_columns(like),
        missing=missing,
        split_by=split_by,
        id_type=id_type,
        label_kind=label_kind,
        metric=metric,
        protocol=protocol,
        num_splits=num_splits,
        seed=seed,
        encoding=encoding,
        decimal=decimal,
        memory=parse_bytes(memory),
    )
    with display.stages() as progress:
        summary = import_graph(source, destination, options, progress)
    for line in summary.lines():
        display.say(line)
    if summary.num_splits:
        display.say(f"next: polyformer train {destination}")
    content = asdict(summary) | {"destination": str(destination), "edges_per_second": summary.edges_per_second}
    display.result(content)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
