from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyformer.cli.cluster_options import RayAddress, on_ray
from polyformer.cli.display import Display
from polyformer.cli.node_choice import select_nodes
from polyformer.cli.options import DataRoot, FeatureRun, JsonSummary, NodeSelection, dataclass_options

if TYPE_CHECKING:
    import numpy as np

    from polyformer.graph import Graph
    from polyformer.operators import Operator
    from polyformer.propagation.engine import Engine

__all__ = ["tokens"]


@dataclass(frozen=True)
class TokensOptions:
    """Options of `polyformer tokens`."""

    data: Annotated[str, typer.Argument(metavar="DATASET|PATH", help="A data set or a graph directory.")]
    out: Annotated[Path | None, typer.Option(help="The token directory to write.")] = None
    update: Annotated[
        Path | None,
        typer.Option(
            metavar="TOKENS", help="Bring this token directory to the changed graph PATH instead of writing a new one."
        ),
    ] = None
    tolerance: Annotated[
        float,
        typer.Option(
            help="With --update: leave out changes below this share of the tokens' size; a bound on the error is "
            "reported. 0 is exact."
        ),
    ] = 0.0
    basis: Annotated[str, typer.Option(help="See `polyformer bases`. A fixed basis is stored in Chebyshev form.")] = (
        "chebyshev"
    )
    order: Annotated[int, typer.Option(help="K: every node gets the tokens g_0, …, g_K.")] = 10
    self_loops: Annotated[
        bool, typer.Option("--self-loops", help="Propagate with A + I instead of the adjacency A.")
    ] = False
    engine: Annotated[
        str,
        typer.Option(
            help="How tokens are computed. memory: in memory; disk: graphs larger than memory; "
            "ray: several machines share the work."
        ),
    ] = "memory"
    memory: Annotated[
        str | None,
        typer.Option(
            help="Use at most this much memory, e.g. 8GiB; with --engine ray, in each task. "
            "[default: 80 % of free memory]"
        ),
    ] = None
    buffers: Annotated[
        str,
        typer.Option(
            help="With --engine disk: float16 gathers half as often; Chebyshev tokens of order k are then off by "
            "about 0.0003 (k + 1) of their size, those of other bases by a few times as much."
        ),
    ] = "float32"
    address: RayAddress = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --engine ray: number of tasks at a time. [default: one for each node, with all its CPUs]",
        ),
    ] = None
    nodes: NodeSelection = "all"
    dtype: Annotated[
        str,
        typer.Option(help="float32; or float16, which takes half the disk and is refused if a token does not fit."),
    ] = "float32"
    scale_features: Annotated[
        str,
        typer.Option(
            help="auto: put features of your own on a common scale, as train does; none: leave features as they are."
        ),
    ] = "auto"
    like: FeatureRun = None
    data_root: DataRoot = None
    json_only: JsonSummary = False


@dataclass_options
def tokens(options: TokensOptions) -> None:
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
    from polyformer.machine import format_bytes
    from polyformer.operators import Operator
    from polyformer.stores.blocks import TokenShape
    from polyformer.tokens import write_tokens

    display = Display(options.json_only)
    if options.update is not None:
        _update(display, options, options.update)
        return
    out, order = _check(options), options.order
    graph, nodes = _open_graph(display, options)
    runner, operator = _engine(options), Operator(graph, options.self_loops)
    num_rows = graph.num_nodes if nodes is None else len(nodes)
    shape = TokenShape(num_rows, order, graph.num_features, options.dtype)
    start = time.monotonic()
    with runner.session():
        display.say(
            f"{num_rows:,} nodes × {order + 1} tokens × {graph.num_features:,} features: "
            f"{format_bytes(shape.bytes)} on disk, twice that until they are put together"
        )
        display.say(_cost_line(runner, operator, options))
        work = len(graph.indices) * max(order, 1) * graph.num_features / 1e6
        with display.reporter(work=work, unit="million products") as reporter:
            write_tokens(graph, out, options.basis, order, options.self_loops, nodes, runner, reporter, options.dtype)
    seconds = time.monotonic() - start
    display.say(f"written to {out} in {seconds:.1f} s")
    display.result(
        {"out": str(out), "rows": num_rows, "order": order, "bytes": shape.bytes, "seconds": round(seconds, 3)}
    )


def _check(options: TokensOptions) -> Path:
    """Where tokens are to be written; options that are unknown or contradict each other are refused before any data
    is read."""
    from polyformer.bases import check_order, resolve_basis
    from polyformer.errors import InvalidParameter
    from polyformer.propagation.engine import ENGINES

    if options.out is None:
        raise InvalidParameter("'--out' must name the token directory to write, or '--update' one to bring up to date.")
    resolve_basis(options.basis)
    check_order(options.order)
    if options.scale_features not in ("auto", "none"):
        raise InvalidParameter(f"'--scale-features' must be auto or none. Got '{options.scale_features}'.")
    on_ray(options.engine, options.address, options.workers, ENGINES)
    return options.out


def _open_graph(display: Display, options: TokensOptions) -> tuple[Graph, np.ndarray | None]:
    """The graph with features that are ready for a model, and the nodes whose tokens are wanted; None for all.

    The labels are left behind: they take as much memory as a feature column.
    """
    from polyformer.datasets import load_source
    from polyformer.errors import InvalidData
    from polyformer.feature_preparation import prepare_task
    from polyformer.runs.run import Run

    root = None if options.data_root is None else str(options.data_root)
    with display.reporter() as reporter:
        if options.like is not None:
            task = Run.open_model(options.like).task(options.data, root, reporter)
        else:
            task = load_source(options.data, root, reporter=reporter, applied=True)
            task = prepare_task(task, options.scale_features, reporter)
    if task.graph.features is None:
        raise InvalidData(f"Tokens need node features and '{options.data}' has none. Choose a graph with features.")
    return task.graph, select_nodes(options.nodes, task.labels)


def _cost_line(runner: Engine, operator: Operator, options: TokensOptions) -> str:
    """A sentence on the memory and the time that the engine expects to need."""
    from polyformer.bases import resolve_basis
    from polyformer.durations import format_seconds
    from polyformer.machine import format_bytes

    features = operator.graph.features
    assert features is not None
    cost = runner.cost(operator, options.order, features, resolve_basis(options.basis).fixed)
    tasks = "" if cost.tasks == 1 else f" in each of {cost.tasks} tasks at a time"
    return f"needs about {format_bytes(cost.memory)} of memory{tasks} and {format_seconds(cost.seconds)}"


def _update(display: Display, options: TokensOptions, directory: Path) -> None:
    """Bring a token directory to a changed graph."""
    from polyformer.tasks import Task
    from polyformer.updates.tokens import update_tokens

    report = update_tokens(directory, Task.load(options.data).graph, options.tolerance, _engine(options))
    orders = ", ".join(f"{count:,}" for count in report.rows_touched)
    display.say(
        f"{directory}: all {report.rows_written:,} rows computed anew"
        if report.recomputed
        else f"{directory}: {report.rows_written:,} rows written; rows touched for each order: {orders}"
    )
    display.say(f"bound on the error of the last order: {report.error_bound:.3g}; took {report.seconds:.2f} s")
    display.result({"tokens": str(directory), "error_bound": report.error_bound, **asdict(report)})


def _engine(options: TokensOptions) -> Engine:
    """The engine by name; the memory limit holds for this process, or for each task on Ray."""
    from polyformer.errors import InvalidParameter
    from polyformer.machine import parse_bytes, resident_bytes, usable_memory
    from polyformer.propagation.disk import DiskEngine
    from polyformer.propagation.engine import ENGINES
    from polyformer.propagation.ray import RayEngine

    bound = None if options.memory is None else parse_bytes(options.memory)
    if options.engine == "ray":
        return RayEngine(bound, options.address, options.workers)
    limit = usable_memory() if bound is None else max(0, bound - resident_bytes())
    if options.engine == "disk":
        return DiskEngine(limit, options.buffers)
    if options.buffers != "float32":
        raise InvalidParameter(f"'--buffers' must be float32 without --engine disk. Got '{options.buffers}'.")
    return ENGINES[options.engine](limit)
