from __future__ import annotations

from pathlib import Path

import typer

from polyformer.cli.display import Display
from polyformer.cli.node_choice import select_nodes

__all__ = ["filters"]


def filters(
    run: Path = typer.Argument(..., metavar="RUN", help="A run directory, or a saved classifier."),
    data: str | None = typer.Argument(
        None, metavar="[PATH]", help="Another graph with the same features; the run's own data if left out."
    ),
    out: Path = typer.Option(..., help="The .parquet file to write; an existing file is replaced."),
    nodes: str = typer.Option("all", help="all, labelled, or a file of node numbers (.npy or text, one a line)."),
    clusters: int | None = typer.Option(None, help="Number of kinds of filters. [default: 2 to 6, by silhouette]"),
    channel: int | None = typer.Option(
        None, help="Feature column whose response is written; optimal basis only. [default: the largest]"
    ),
    points: int = typer.Option(21, help="Number of λ, evenly from 0 to 2, at which responses are written; 0 for none."),
    tokens: Path | None = typer.Option(
        None, help="A token directory of these nodes; by default tokens are computed. See `polyformer tokens`."
    ),
    memory: str | None = typer.Option(
        None,
        help="Use at most this memory, e.g. 8GiB; tokens that need more go through the disk. [default: 80 % of free]",
    ),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    json_only: bool = typer.Option(False, "--json", help="Print a summary as JSON on stdout and nothing else there."),
) -> None:
    """Write every node's learned filter as Parquet: coefficients, response, kind, low/band/high-pass shares.

    The response is the first layer's alone: residual and LayerNorm are left out. The columns are described in
    docs/report.md.

    Examples:

    - `polyformer filters runs/my-run --out filters.parquet`

    - `polyformer filters runs/my-run --clusters 5 --points 65 --out filters.parquet`
    """
    from polyformer.files import existing_folder
    from polyformer.filters import write_filters
    from polyformer.machine import parse_bytes
    from polyformer.prediction import TABLE_ENDINGS, Resources, check_table_path, open_run_task
    from polyformer.training.saved_model import load_model

    display = Display(json_only)
    limit = None if memory is None else parse_bytes(memory)
    _, model = load_model(run)
    check_table_path(out, TABLE_ENDINGS[:1])
    with display.stages() as loading:
        task = open_run_task(run, data, None if data_root is None else str(data_root), loading, display.say)
    selected_nodes = select_nodes(nodes, task.labels)
    with display.share("tokens") as progress, display.share("filters") as walked:
        resources = Resources(limit, tokens, existing_folder(out), display.say, progress, walked)
        count = write_filters(
            out, model, task, selected_nodes, clusters=clusters, channel=channel, points=points, resources=resources
        )
    display.say(f"{count:,} rows written to {out}")
    display.result({"rows": count, "out": str(out)})
