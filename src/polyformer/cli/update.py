from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyformer.cli.display import Display
from polyformer.cli.options import JsonSummary

__all__ = ["update"]


def update(
    graph: Annotated[Path, typer.Argument(metavar="GRAPH", help="A graph directory, made by `polyformer import`.")],
    changes: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CHANGES]",
            help="A folder of tables, or one table, of what is added, changed and removed. Without it, the journal is "
            "shown.",
        ),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option("--compact", help="Take out the rows of removed nodes; tokens have to be made again after that."),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Apply tables that were applied before; they are refused otherwise.")
    ] = False,
    check: Annotated[
        list[Path] | None,
        typer.Option(
            "--check", metavar="RUN", help="Tell how far this run's predictions moved, and whether to train again."
        ),
    ] = None,
    json_only: JsonSummary = False,
) -> None:
    """Change a graph directory: nodes and edges added, removed or given other values.

    Tables are written like those of `import`, with your own node ids. `nodes` and `edges` have a column `action` that
    says add, change or remove; or each kind has its own table: add_nodes, change_nodes, remove_nodes, add_edges,
    change_edges, remove_edges. New nodes come last; removed nodes stay as empty rows that are never predicted.

    Examples:

    - `polyformer update my_graph/ changes/` — changes/nodes.csv and changes/edges.csv, each with a column action

    - `polyformer update my_graph/ add_edges.csv --check runs/my-run`

    - `polyformer update my_graph/` — what changed, and when

    - `polyformer update my_graph/ --compact`
    """
    from polyformer.graph import Graph
    from polyformer.graph_journal import Journal
    from polyformer.runs.drift import drift_of_run, keep_baseline
    from polyformer.updates.change_tables import read_changes
    from polyformer.updates.graph_directory import compact_graph, update_graph

    display = Display(json_only)
    for run in check or []:
        keep_baseline(run, graph)
    entries = []
    if changes is not None:
        entries.append(update_graph(graph, lambda task: read_changes(changes, task), changes.name, again))
    if compact:
        entries.append(compact_graph(graph))
    if changes is None and not compact:
        entries = Journal(graph, Graph.load(graph).version).entries()
    for entry in entries:
        counts = ", ".join(f"{count:,} {what}" for what, count in entry["counts"].items() if count)
        display.say(f"version {entry['version']} ({entry['time']}, {entry['source']}): {counts or 'nothing changed'}")
    if not entries:
        display.say(f"{graph} has not changed since it was made")
    drifts = [drift_of_run(run, graph) for run in check or []]
    for drift in drifts:
        for line in drift.lines():
            display.say(line)
    display.result({"graph": str(graph), "versions": entries, "runs": [drift.to_json() for drift in drifts]})
