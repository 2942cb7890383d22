from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from polyformer.cli.cluster_options import Place, RayAddress, on_ray
from polyformer.cli.display import Display
from polyformer.cli.node_choice import select_nodes
from polyformer.cli.options import (
    AnotherGraph,
    DataRoot,
    Device,
    JsonSummary,
    NodeSelection,
    StoredTokens,
    TrainedRun,
    dataclass_options,
)

if TYPE_CHECKING:
    import numpy as np

    from polyformer.coverage import Coverage
    from polyformer.graph import Graph
    from polyformer.label_input import KnownLabels
    from polyformer.models import NodeModel, Workload
    from polyformer.reporter import Reporter
    from polyformer.runs.run import Run
    from polyformer.runs.saved_model import ModelCard
    from polyformer.tasks import Task

__all__ = ["predict"]

Blocks: TypeAlias = "Iterator[tuple[np.ndarray, np.ndarray]]"
"""Node numbers (n,) and their scores (n, C), block after block."""


@dataclass(frozen=True)
class PredictOptions:
    """Options of `polyformer predict`."""

    run: TrainedRun
    out: Annotated[Path, typer.Option(help="The file to write, .parquet or .csv; an existing file is replaced.")]
    data: AnotherGraph = None
    nodes: NodeSelection = "all"
    tokens: StoredTokens = None
    memory: Annotated[
        str | None,
        typer.Option(
            help="Use at most this much memory, e.g. 8GiB; with --engine ray, in each task; tokens that need more go "
            "through the disk. [default: 80 % of free memory]",
        ),
    ] = None
    engine: Place = "local"
    address: RayAddress = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --engine ray: number of tasks at a time, each on one CPU. [default: one for each CPU]"
        ),
    ] = None
    coverage: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Add a set of classes per node that holds the truth with this frequency, e.g. 0.9; for real values an "
            "interval.",
        ),
    ] = None
    new: Annotated[
        Path | None,
        typer.Option(metavar="NODES.csv", help="A table of nodes that are not in the graph: predict just these."),
    ] = None
    edges: Annotated[
        Path | None, typer.Option(metavar="EDGES.csv", help="With --new: a table of the new nodes' edges.")
    ] = None
    mode: Annotated[
        str,
        typer.Option(
            help="With --new: frozen, the neighbours keep their tokens and degrees; or full, the neighbourhood feels "
            "the new nodes."
        ),
    ] = "frozen"
    hide_labels: Annotated[
        bool, typer.Option("--hide-labels", help="Show a model that reads known labels none of them.")
    ] = False
    device: Device = "auto"
    data_root: DataRoot = None
    json_only: JsonSummary = False


@dataclass_options
def predict(options: PredictOptions) -> None:
    """Write the predictions of a trained model as a table: node id, predicted class, a probability per class.

    Tables of another graph are read as training read its tables: the same columns, the same categories.

    Examples:

    - `polyformer predict runs/my-run --out predictions.parquet`

    - `polyformer predict runs/my-run another_graph/ --out predictions.parquet` — nodes that the model has never seen

    - `polyformer predict runs/my-run --tokens tokens/ --nodes labelled --out predictions.parquet` — nothing is computed
    again

    - `polyformer predict runs/my-run --coverage 0.9 --out predictions.csv` — also sets of classes, nine of ten
    of which hold the truth

    - `polyformer predict runs/my-run --new nodes.csv --edges edges.csv --out predictions.csv` — nodes that are not in
    the graph, which is not changed

    - `polyformer predict /shared/run --tokens /shared/tokens --engine ray --address auto --out /shared/p.parquet`
    """
    from polyformer.files import existing_folder
    from polyformer.machine import parse_bytes
    from polyformer.models import Workload
    from polyformer.runs.run import Run
    from polyformer.table_writer import check_table_path

    display = Display(options.json_only)
    spread = on_ray(options.engine, options.address, options.workers)  # refuses options that contradict each other
    limit = None if options.memory is None else parse_bytes(options.memory)
    run = Run.open_model(options.run)
    card, model = run.load("cpu" if spread else options.device)
    check_table_path(options.out)
    coverage = None if options.coverage is None else card.coverage(options.coverage)
    with display.reporter() as reporter:
        task = run.task(options.data, None if options.data_root is None else str(options.data_root), reporter)
        labels = _shown_labels(run, task, options)
        if options.new is not None:
            count = _predict_new(card, model, task, options, options.new, coverage, labels)
        else:
            nodes, scratch = _select(options, task), existing_folder(options.out)
            workload = Workload(nodes, memory=limit, tokens=options.tokens, scratch=scratch, labels=labels)
            with _predict(run, card, model, task.graph, options, workload, reporter) as blocks:
                count = _write(card, blocks, task.ids, options.out, coverage, labels)
    _conclude(display, options, count, coverage, labels)


def _shown_labels(run: Run, task: Task, options: PredictOptions) -> KnownLabels | None:
    """The labels that the model is shown; None for a model that reads no labels."""
    from polyformer.errors import InvalidParameter

    if run.labels is None and options.hide_labels:
        raise InvalidParameter(
            "'--hide-labels' is for models that read known labels, and this one reads none. Omit it."
        )
    return (
        run.labels.none_in(task.graph) if run.labels and options.hide_labels else run.shown_labels(task, options.data)
    )


def _select(options: PredictOptions, task: Task) -> np.ndarray | None:
    """The nodes of the graph to predict; None for all."""
    from polyformer.errors import InvalidParameter

    if options.edges is not None:
        raise InvalidParameter("'--edges' are those of new nodes, so it must come with '--new'.")
    return select_nodes(options.nodes, task.labels, task.graph.removed)


def _predict(
    run: Run,
    card: ModelCard,
    model: NodeModel,
    graph: Graph,
    options: PredictOptions,
    workload: Workload,
    reporter: Reporter,
) -> contextlib.AbstractContextManager[Blocks]:
    """Node numbers and their scores, block after block, from here or from a cluster."""
    from polyformer.runs.prediction import predict_blocks
    from polyformer.runs.sharded_prediction import ClusterOptions, predict_shards

    if options.engine == "ray":
        cluster = ClusterOptions(options.address, options.workers)
        return predict_shards(run, model, graph, options.out, workload, cluster, reporter)
    return contextlib.nullcontext(predict_blocks(model, card.reader, graph, workload, reporter))


def _predict_new(
    card: ModelCard,
    model: NodeModel,
    task: Task,
    options: PredictOptions,
    nodes: Path,
    coverage: Coverage | None,
    labels: KnownLabels | None,
) -> int:
    """Write the predictions of nodes that two tables describe; returns their number."""
    import numpy as np

    from polyformer.runs.application import new_nodes_of
    from polyformer.updates.change_tables import read_new_nodes

    change = read_new_nodes(nodes, options.edges, task)
    predictor = new_nodes_of(card, model, task.graph, options.tokens, labels)
    scores = predictor.predict(change.add_features, change.add_edges, options.mode, change.add_weights)
    ids = np.array(change.new_ids)
    return _write(card, iter([(np.arange(len(ids)), scores)]), ids, options.out, coverage)


def _write(
    card: ModelCard,
    blocks: Blocks,
    ids: np.ndarray | None,
    out: Path,
    coverage: Coverage | None,
    labels: KnownLabels | None = None,
) -> int:
    """Write the table; returns the number of its rows."""
    from polyformer.runs.prediction import write_predictions

    return write_predictions(out, blocks, ids, card.reader, card.class_names, card.threshold, coverage, labels)


def _conclude(
    display: Display, options: PredictOptions, count: int, coverage: Coverage | None, labels: KnownLabels | None
) -> None:
    """Say how many predictions were written, and what their sets or intervals hold."""
    summary: dict[str, Any] = {"nodes": count, "out": str(options.out)}
    if options.new is not None:
        summary["mode"] = options.mode
    whose = "" if options.new is None else " of new nodes"
    display.say(f"{count:,} predictions{whose} written to {options.out}")
    if labels is not None:
        summary["labels_shown"] = len(labels.nodes)
        words = "" if options.new is not None else "; their rows say so in the column label_shown"
        display.say(f"the model was shown the labels of {len(labels.nodes):,} nodes{words}")
    if coverage is not None:
        display.say(coverage.describe())
        summary |= {"coverage": coverage.share, "coverage_bound": coverage.bound, "coverage_nodes": coverage.nodes}
    display.result(summary)
