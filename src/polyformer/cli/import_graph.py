from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from polyformer.cli.display import Display
from polyformer.cli.options import FeatureRun, JsonSummary, options_from
from polyformer.importing.options import ImportOptions

__all__ = ["import_command"]


@options_from(ImportOptions, "given")
def import_command(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="Tables, a folder of them, npz, mat, mtx, pt, raw file, or synthetic:…"),
    ],
    destination: Annotated[Path, typer.Argument(metavar="DEST", help="The graph directory to write.")],
    given: dict[str, Any],
    like: FeatureRun = None,
    json_only: JsonSummary = False,
) -> None:
    """Turn a graph of your own into a graph directory, in bounded memory.

    Reads CSV and Parquet tables, npz files (of heterophilous-graphs, gnn-benchmark or scipy), MATLAB and Matrix Market
    files, PyTorch Geometric files, raw int32 pairs, and folders of OGB and Planetoid. The command shows what it
    took each column for. Smaller graphs need no import: `polyformer train` reads the same formats.

    Examples:

    - `polyformer import my_tables/ my_graph/` — edges.csv (source, target) and nodes.csv (id, label, features)

    - `polyformer import follows.parquet my_graph/ --nodes users.parquet --id-column user --label-column country`

    - `polyformer import new_users/ new_graph/ --id-column user --like runs/my-run`, then
      `polyformer predict runs/my-run new_graph/ --out predictions.parquet`

    - `polyformer import synthetic:nodes=1e6,edges=15e6,features=64,classes=40,seed=1 made_up/` — a made-up graph of
    any size; it also takes labelled=, homophily=, noise= and dtype=, and no option below but --json
    """
    from dataclasses import asdict

    from polyformer.errors import InvalidParameter
    from polyformer.importing import import_graph
    from polyformer.runs.run import Run

    display = Display(json_only)
    if like is not None:
        if given.get("features") or given.get("categories"):
            raise InvalidParameter("'--like' tells which columns are features. Leave out --features and --categories.")
        given["columns"] = Run.open_model(like).card.table_columns(str(like))
    options = ImportOptions(**given)
    with display.reporter() as reporter:
        summary = import_graph(source, destination, options, reporter)
    for line in summary.lines():
        display.say(line)
    if summary.num_splits:
        display.say(f"next: polyformer train {destination}")
    content = asdict(summary) | {"destination": str(destination), "edges_per_second": summary.edges_per_second}
    display.result(content)
