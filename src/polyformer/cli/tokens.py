from __future__ import annotations

import time
from pathlib import Path

import typer

from polyformer.cli.display import Display
from polyformer.cli.node_choice import select_nodes

__all__ = ["tokens"]


def tokens(
    data: str = typer.Argument(..., metavar="DATASET|PATH", help="A data set or a graph directory."),
    out: Path = typer.Option(..., help="The token directory to write."),
    basis: str = typer.Option("chebyshev", help="See `polyformer bases`. A fixed basis is stored in Chebyshev form."),
    order: int = typer.Option(10, help="K."),
    self_loops: bool = typer.Option(False, "--self-loops", help="Use the operator of A + I."),
    engine: str = typer.Option("memory", help="memory: everything in memory; disk: graphs larger than memory."),
    memory: str | None = typer.Option(None, help="Not to use more, e.g. 8GiB. [default: 80 % of what is free]"),
    nodes: str = typer.Option("all", help="all, labelled, or a file of node numbers (.npy or text, one a line)."),
    dtype: str = typer.Option("float32", help="float32, or float16: half the disk, refused if a token does not fit."),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    json_only: bool = typer.Option(False, "--json", help="Print a summary as JSON on stdout and nothing else there."),
) -> None:
    """Compute polynomial tokens g_k(P)X once and store them, row after row, for training.

    Stored tokens of a fixed basis serve every fixed basis and every lower order of the same operator:
    `pf.open_tokens("tokens/", basis="bernstein", order=4)`.

    Examples:

    - `polyformer tokens minefield --order 6 --out tokens/`

    - `polyformer tokens my_graph/ --basis optimal --order 8 --nodes labelled --out tokens/`

    - `polyformer tokens huge_graph/ --engine disk --memory 18GiB --order 4 --nodes labelled --out tokens/`

    Stopped at any moment, the same command goes on where it was.
    """
    from polyformer.bases import check_order, resolve_basis
    from polyformer.datasets import load_source
    from polyformer.errors import InvalidData
    from polyformer.machine import format_bytes, parse_bytes, resident_bytes, usable_memory
    from polyformer.operators import Operator
    from polyformer.progress import format_seconds
    from polyformer.propagation.engine import ENGINES
    from polyformer.stores.writer import TokenShape
    from polyformer.tokens import write_tokens

    display = Display(json_only)
    kind, fixed, order = ENGINES[engine], resolve_basis(basis).fixed, check_order(order)
    with display.stages() as loading:
        task = load_source(data, None if data_root is None else str(data_root), progress=loading, report=display.say)
    graph = task.graph
    if graph.features is None:
        raise InvalidData(f"Tokens need node features and '{data}' has none. Choose a graph with features.")
    chosen = select_nodes(nodes, task.labels)
    del task  # its labels take as much memory as a feature column
    limit = usable_memory() if memory is None else max(0, parse_bytes(memory) - resident_bytes())
    runner, operator = kind(limit), Operator(graph, self_loops)
    shape = TokenShape(graph.num_nodes if chosen is None else len(chosen), order, graph.num_features, dtype)
    cost = runner.cost(operator, order, graph.features, fixed)
    display.say(
        f"{shape.num_rows:,} nodes × {order + 1} tokens × {graph.num_features:,} features: "
        f"{format_bytes(shape.bytes)} on disk, twice that until they are put together"
    )
    display.say(f"needs about {format_bytes(cost.memory)} of memory and {format_seconds(cost.seconds)}")
    start = time.monotonic()
    work = len(graph.indices) * max(order, 1) * graph.num_features / 1e6
    with display.share("tokens", work, "million products") as progress:
        write_tokens(graph, out, basis, order, self_loops, chosen, runner, progress, dtype)
    seconds = time.monotonic() - start
    display.say(f"written to {out} in {seconds:.1f} s")
    display.result(
        {"out": str(out), "rows": shape.num_rows, "order": order, "bytes": shape.bytes, "seconds": round(seconds, 3)}
    )
