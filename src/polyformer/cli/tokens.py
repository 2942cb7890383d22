from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyformer.cli.cluster_options import RayAddress, on_ray
from polyformer.cli.display import Display
from polyformer.cli.node_choice import select_nodes
from polyformer.cli.options import DataRoot, FeatureRun, JsonSummary, NodeSelection

if TYPE_CHECKING:
    from polyformer.propagation.engine import Engine

__all__ = ["tokens"]


def tokens(
    data: Annotated[str, typer.Argument(metavar="DATASET|PATH", help="A data set or a graph directory.")],
    out: Annotated[Path | None, typer.Option(help="The token directory to write.")] = None,
    update: Annotated[
        Path | None,
        typer.Option(
            metavar="TOKENS", help="Bring this token directory to the changed graph PATH instead of writing a new one."
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            help="With --update: leave out changes below this share of the tokens' size; a bound on the error is "
            "reported. 0 is exact."
        ),
    ] = 0.0,
    basis: Annotated[
        str, typer.Option(help="See `polyformer bases`. A fixed basis is stored in Chebyshev form.")
    ] = "chebyshev",
    order: Annotated[int, typer.Option(help="K: every node gets the tokens g_0, …, g_K.")] = 10,
    self_loops: Annotated[
        bool, typer.Option("--self-loops", help="Propagate with A + I instead of the adjacency A.")
    ] = False,
    engine: Annotated[
        str,
        typer.Option(
            help="How tokens are computed. memory: in memory; disk: graphs larger than memory; "
            "ray: several machines share the work."
        ),
    ] = "memory",
    memory: Annotated[
        str | None,
        typer.Option(
            help="Use at most this much memory, e.g. 8GiB; with --engine ray, in each task. "
            "[default: 80 % of free memory]"
        ),
    ] = None,
    address: RayAddress = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --engine ray: number of tasks at a time. [default: one for each node, with all its CPUs]",
        ),
    ] = None,
    nodes: NodeSelection = "all",
    dtype: Annotated[
        str,
        typer.Option(help="float32; or float16, which takes half the disk and is refused if a token does not fit."),
    ] = "float32",
    scale_features: Annotated[
        str,
        typer.Option(
            help="auto: put features of your own on a common scale, as train does; none: leave features as they are."
        ),
    ] = "auto",
    like: FeatureRun = None,
    data_root: DataRoot = None,
    json_only: JsonSummary = False,
) -> None:
    """Compute polynomial tokens g_k(P)X once and store them, row after row, for training.

    Stored tokens of a fixed basis serve every fixed basis and every lower order of the same operator:
    `pf.open_tokens("tokens/", basis="bernstein", order=4)`.

    Examples:

    - `polyformer tokens minefield --order 6 --out tokens/`

    - `polyformer tokens my_graph/ --basis optimal --order 8 --nodes labelled --out tokens/`

    - `polyformer tokens huge_graph/ --engine disk --memory 18GiB --order 4 --nodes labelled --out tokens/`

    - `polyformer tokens /shared/huge_graph --engine ray --address auto --order 4 --out /shared/tokens`

    - `polyformer update my_graph/ changes/`, then `polyformer tokens my_graph/ --update tokens/ --tolerance 1e-3`

    If the command is stopped at any moment, the same command continues where it stopped.
    """
    from polyformer.bases import check_order, resolve_basis
    from polyformer.datasets import load_source
    from polyformer.durations import format_seconds
    from polyformer.errors import InvalidData, InvalidParameter
    from polyformer.feature_preparation import prepare_task
    from polyformer.machine import format_bytes
    from polyformer.operators import Operator
    from polyformer.propagation.engine import ENGINES
    from polyformer.runs.run import Run
    from polyformer.stores.blocks import TokenShape
    from polyformer.tokens import write_tokens

    display = Display(json_only)
    if update is not None:
        _update(display, data, update, tolerance, _engine(engine, memory, address, workers))
        return
    if out is None:
        raise InvalidParameter("'--out' must name the token directory to write, or '--update' one to bring up to date.")
    fixed, order = resolve_basis(basis).fixed, check_order(order)
    if scale_features not in ("auto", "none"):
        raise InvalidParameter(f"'--scale-features' must be auto or none. Got '{scale_features}'.")
    on_ray(engine, address, workers, ENGINES)  # refuses options that contradict each other before any data is read
    with display.reporter() as reporter:
        root = None if data_root is None else str(data_root)
        if like is not None:
            task = Run.open_model(like).task(data, root, reporter)
        else:
            task = load_source(data, root, reporter=reporter, applied=True)
            task = prepare_task(task, scale_features, reporter)
    graph = task.graph
    if graph.features is None:
        raise InvalidData(f"Tokens need node features and '{data}' has none. Choose a graph with features.")
    selected_nodes = select_nodes(nodes, task.labels)
    del task  # the labels of a task take as much memory as a feature column
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
        with display.reporter(work=work, unit="million products") as reporter:
            write_tokens(graph, out, basis, order, self_loops, selected_nodes, runner, reporter, dtype)
    seconds = time.monotonic() - start
    display.say(f"written to {out} in {seconds:.1f} s")
    display.result(
        {"out": str(out), "rows": shape.num_rows, "order": order, "bytes": shape.bytes, "seconds": round(seconds, 3)}
    )


def _update(display: Display, data: str, directory: Path, tolerance: float, runner: Engine) -> None:
    """Bring a token directory to a changed graph."""
    from dataclasses import asdict

    from polyformer.tasks import Task
    from polyformer.updates.tokens import update_tokens

    report = update_tokens(directory, Task.load(data).graph, tolerance, runner)
    orders = ", ".join(f"{count:,}" for count in report.rows_touched)
    display.say(
        f"{directory}: all {report.rows_written:,} rows computed anew"
        if report.recomputed
        else f"{directory}: {report.rows_written:,} rows written; rows touched for each order: {orders}"
    )
    display.say(f"bound on the error of the last order: {report.error_bound:.3g}; took {report.seconds:.2f} s")
    display.result({"tokens": str(directory), "error_bound": report.error_bound, **asdict(report)})


def _engine(name: str, memory: str | None, address: str | None, workers: int | None) -> Engine:
    """The engine by name; the memory limit holds for this process, or for each task on Ray."""
    from polyformer.machine import parse_bytes, resident_bytes, usable_memory
    from polyformer.propagation.engine import ENGINES
    from polyformer.propagation.ray import RayEngine

    bound = None if memory is None else parse_bytes(memory)
    if name == "ray":
        return RayEngine(bound, address, workers)
    return ENGINES[name](usable_memory() if bound is None else max(0, bound - resident_bytes()))
