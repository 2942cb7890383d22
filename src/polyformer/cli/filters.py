from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyformer.cli.display import Display
from polyformer.cli.node_choice import select_nodes
from polyformer.cli.options import (
    AnotherGraph,
    Clusters,
    DataRoot,
    Device,
    JsonSummary,
    MemoryLimit,
    NodeSelection,
    StoredTokens,
    TrainedRun,
)

__all__ = ["filters"]


def filters(
    run: TrainedRun,
    out: Annotated[Path, typer.Option(help="The .parquet file to write; an existing file is replaced.")],
    data: AnotherGraph = None,
    nodes: NodeSelection = "all",
    clusters: Clusters = None,
    channel: Annotated[
        int | None,
        typer.Option(help="Feature column whose response is written; optimal basis only. [default: the largest]"),
    ] = None,
    points: Annotated[
        int, typer.Option(help="Number of λ, evenly from 0 to 2, at which responses are written; 0 for none.")
    ] = 21,
    tokens: StoredTokens = None,
    memory: MemoryLimit = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    json_only: JsonSummary = False,
) -> None:
    """Write every node's learned filter as Parquet: coefficients, response, kind, low/band/high-pass shares.

    The response is that of the first layer alone, without residual and LayerNorm. docs/report.md describes the columns.

    Examples:

    - `polyformer filters runs/my-run --out filters.parquet`

    - `polyformer filters runs/my-run --clusters 5 --points 65 --out filters.parquet`
    """
    from polyformer.files import existing_folder
    from polyformer.filters import write_filters
    from polyformer.machine import parse_bytes
    from polyformer.models import Workload
    from polyformer.runs.run import Run
    from polyformer.table_writer import TABLE_ENDINGS, check_table_path

    display = Display(json_only)
    limit = None if memory is None else parse_bytes(memory)
    opened = Run.open_model(run)
    model = opened.model(device)
    check_table_path(out, TABLE_ENDINGS[:1])
    with display.reporter() as reporter:
        task = opened.task(data, None if data_root is None else str(data_root), reporter)
        labels = opened.shown_labels(task, data)
        selected_nodes = select_nodes(nodes, task.labels, task.graph.removed)
        workload = Workload(selected_nodes, memory=limit, tokens=tokens, scratch=existing_folder(out), labels=labels)
        count = write_filters(
            out, model, task, workload, clusters=clusters, channel=channel, points=points, reporter=reporter
        )
    display.say(f"{count:,} rows written to {out}")
    display.result({"rows": count, "out": str(out)})
