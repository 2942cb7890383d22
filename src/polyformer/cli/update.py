from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from polyformer.cli.display import Display
from polyformer.cli.options import JsonSummary, dataclass_options

__all__ = ["update"]


@dataclass(frozen=True)
class UpdateOptions:
    """Options of `polyformer update`."""

    graph: Annotated[Path, typer.Argument(metavar="GRAPH", help="A graph directory, made by `polyformer import`.")]
    changes: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CHANGES]",
            help="A folder of tables, or one table, of what is added, changed and removed. Without it, the journal is "
            "shown.",
        ),
    ] = None
    compact: Annotated[
        bool,
        typer.Option("--compact", help="Take out the rows of removed nodes; tokens have to be made again after that."),
    ] = False
    again: Annotated[
        bool, typer.Option("--again", help="Apply tables that were applied before; they are refused otherwise.")
    ] = False
    check: Annotated[
        list[Path] | None,
        typer.Option(
            "--check", metavar="RUN", help="Tell how far this run's predictions moved, and whether to train again."
        ),
    ] = None
    json_only: JsonSummary = False


@dataclass_options
def update(options: UpdateOptions) -> None:
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
    from polyformer.runs.drift import drift_of_run, keep_baseline

    display, graph, runs = Display(options.json_only), options.graph, options.check or []
    for run in runs:
        keep_baseline(run, graph)
    entries = _apply(options)
    for entry in entries:
        counts = ", ".join(_counted(count, what) for what, count in entry["counts"].items() if count)
        display.say(f"version {entry['version']} ({entry['time']}, {entry['source']}): {counts or 'nothing changed'}")
    if not entries:
        display.say(f"{graph} has not changed since it was made")
    drifts = [drift_of_run(run, graph) for run in runs]
    for line in (line for drift in drifts for line in drift.lines()):
        display.say(line)
    display.result({"graph": str(graph), "versions": entries, "runs": [drift.to_json() for drift in drifts]})


def _apply(options: UpdateOptions) -> list[dict[str, Any]]:
    """The entries of the journal that this call adds; all entries if it changes nothing."""
    from polyformer.graph import Graph
    from polyformer.graph_journal import Journal
    from polyformer.updates.change_tables import read_changes, tables_digest
    from polyformer.updates.graph_directory import compact_graph, update_graph

    graph, changes = options.graph, options.changes
    if changes is None and not options.compact:
        return Journal(graph, Graph.load(graph).version).entries()
    entries = []
    if changes is not None:
        digest = tables_digest(changes)
        entries.append(
            update_graph(graph, lambda task: read_changes(changes, task), changes.name, options.again, digest)
        )
    if options.compact:
        entries.append(compact_graph(graph))
    return entries


def _counted(count: int, what: str) -> str:
    """``1 node added``, ``2 nodes added``: the first word is a plural."""
    noun, _, rest = what.partition(" ")
    return f"{count:,} {noun if count != 1 else noun.removesuffix('s')} {rest}"
