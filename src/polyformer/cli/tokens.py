from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from polyformer.cli.cluster_options import ADDRESS, on_ray
from polyformer.cli.display import Display
from polyformer.cli.node_choice import select_nodes

if TYPE_CHECKING:
    from polyformer.propagation.engine import Engine

__all__ = ["tokens"]


def tokens(
    data: str = typer.Argument(..., metavar="DATASET|PATH", help="A data set or a graph directory."),
    out: Path = typer.Option(..., help="The token directory to write."),
    basis: str = typer.Option("chebyshev", help="See `polyformer bases`. A fixed basis is stored in Chebyshev form."),
    order: int = typer.Option(10, help="K: tokens g_0, …, g_K of every node."),
    self_loops: bool = typer.Option(False, "--self-loops", help="Use the operator of A + I."),
    engine: str = typer.Option(
        "memory", help="memory: everything in memory; disk: graphs larger than memory; ray: on several machines."
    ),
    memory: str | None = typer.Option(
        None, help="Use at most this much memory, e.g. 8GiB; with ray, in each task. [default: 80 % of free memory]"
    ),
    address: str | None = ADDRESS,
    workers: int | None = typer.Option(
        None,
        min=1,
        help="With --engine ray: number of tasks at a time. [default: one for each node, with all its CPUs]",
    ),
    nodes: str = typer.Option("all", help="all, labelled, or a file of node numbers (.npy or text, one a line)."),
    dtype: str = typer.Option("float32", help="float32, or float16: half the disk, refused if a token does not fit."),
    scale_features: str = typer.Option(
        "auto",
        help="auto: put features of your own on a common scale, as train does; none: leave features as they are.",
    ),
    like: Path | None = typer.Option(
        None, metavar="RUN", help="Read and scale the features as this run does, to predict with its model."
    ),
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

    - `polyformer tokens /shared/huge_graph --engine ray --address auto --order 4 --out /shared/tokens`

    Stopped at any moment, the same command goes on where it was.
    """
    from polyformer.bases import check_order, resolve_basis
    from polyformer.datasets import load_source
    from polyformer.errors import InvalidData, InvalidParameter
    from polyformer.feature_preparation import prepare_task
    from polyformer.machine import format_bytes
    from polyformer.operators import Operator
    from polyformer.prediction import open_run_task
    from polyformer.progress import format_seconds
    from polyformer.propagation.engine import ENGINES
    from polyformer.stores.blocks import TokenShape
    from polyformer.tokens import write_tokens

    display = Display(json_only)
    fixed, order = resolve_basis(basis).fixed, check_order(order)
    if scale_features not in ("auto", "none"):
        raise InvalidParameter(f"'--scale-features' must be auto or none. Got '{scale_features}'.")
    on_ray(engine, address, workers, ENGINES)  # refuses what does not go together before any data is read
    with display.stages() as loading:
        root = None if data_root is None else str(data_root)
        if like is not None:
            task = open_run_task(like, data, root, loading, display.say)
        else:
            task = load_source(data, root, progress=loading, report=display.say, applied=True)
            task = prepare_task(task, scale_features, display.say)
    graph = task.graph
    if graph.features is None:
        raise InvalidData(f"Tokens need node features and '{data}' has none. Choose a graph with features.")
    selected_nodes = select_nodes(nodes, task.labels)
    del task  # its labels take as much memory as a feature column
    runner, operator = _engine(engine, memory, address, workers), Operator(graph, self_loops)
    shape = TokenShape(
        graph.num_nodes if selected_nodes is None else len(selected_nodes), order, graph.num_features, dtype
    )
    start = time.monotonic()
    with runner.session():
        cost = runner.cost(operator, order, graph.features, fixed)
        display.say(
            f"{shape.num_rows:,} nodes × {order + 1} tokens × {graph.num_features:,} features: "
            f"{format_bytes(shape.bytes)} on disk, twice that until they are put together"
        )
        tasks = "" if cost.tasks == 1 else f" in each of {cost.tasks} tasks at a time"
        display.say(f"needs about {format_bytes(cost.memory)} of memory{tasks} and {format_seconds(cost.seconds)}")
        work = len(graph.indices) * max(order, 1) * graph.num_features / 1e6
        with display.share("tokens", work, "million products") as progress:
            write_tokens(graph, out, basis, order, self_loops, selected_nodes, runner, progress, dtype)
    seconds = time.monotonic() - start
    display.say(f"written to {out} in {seconds:.1f} s")
    display.result(
        {"out": str(out), "rows": shape.num_rows, "order": order, "bytes": shape.bytes, "seconds": round(seconds, 3)}
    )


def _engine(name: str, memory: str | None, address: str | None, workers: int | None) -> Engine:
    """The engine asked for, within the memory asked for: of this process, or of each task on Ray."""
    from polyformer.machine import parse_bytes, resident_bytes, usable_memory
    from polyformer.propagation.engine import ENGINES
    from polyformer.propagation.ray import RayEngine

    bound = None if memory is None else parse_bytes(memory)
    if name == "ray":
        return RayEngine(bound, address, workers)
    return ENGINES[name](usable_memory() if bound is None else max(0, bound - resident_bytes()))
