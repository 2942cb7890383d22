from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyformer.cli.cluster_options import Place, RayAddress, on_ray
from polyformer.cli.display import Display
from polyformer.cli.node_choice import select_nodes
from polyformer.cli.options import AnotherGraph, DataRoot, JsonSummary, NodeSelection, StoredTokens, TrainedRun

if TYPE_CHECKING:
    from polyformer.coverage import Coverage
    from polyformer.models import NodeModel
    from polyformer.runs.saved_model import ModelCard
    from polyformer.tasks import Task

__all__ = ["predict"]


def predict(
    run: TrainedRun,
    out: Annotated[Path, typer.Option(help="The file to write, .parquet or .csv; an existing file is replaced.")],
    data: AnotherGraph = None,
    nodes: NodeSelection = "all",
    tokens: StoredTokens = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Use at most this much memory, e.g. 8GiB; with --engine ray, in each task; tokens that need more go "
            "through the disk. [default: 80 % of free memory]",
        ),
    ] = None,
    engine: Place = "local",
    address: RayAddress = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --engine ray: number of tasks at a time, each on one CPU. [default: one for each CPU]"
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Add a set of classes per node that holds the truth with this frequency, e.g. 0.9; for real values an "
            "interval.",
        ),
    ] = None,
    new: Annotated[
        Path | None,
        typer.Option(metavar="NODES.csv", help="A table of nodes that are not in the graph: predict just these."),
    ] = None,
    edges: Annotated[
        Path | None, typer.Option(metavar="EDGES.csv", help="With --new: a table of the new nodes' edges.")
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="With --new: frozen, the neighbours keep their tokens and degrees; or full, the neighbourhood feels "
            "the new nodes."
        ),
    ] = "frozen",
    data_root: DataRoot = None,
    json_only: JsonSummary = False,
) -> None:
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
    from polyformer.errors import InvalidParameter
    from polyformer.files import existing_folder
    from polyformer.machine import parse_bytes
    from polyformer.models import Workload
    from polyformer.runs.prediction import predict_blocks, write_predictions
    from polyformer.runs.run import Run
    from polyformer.runs.sharded_prediction import ClusterOptions, predict_shards
    from polyformer.table_writer import check_table_path

    display, spread = Display(json_only), on_ray(engine, address, workers)
    limit = None if memory is None else parse_bytes(memory)
    opened = Run.open_model(run)
    card, model = opened.load()
    check_table_path(out)
    wanted = None if coverage is None else card.coverage(coverage)
    with display.reporter() as reporter, contextlib.ExitStack() as stack:
        task = opened.task(data, None if data_root is None else str(data_root), reporter)
        if new is not None:
            count = _predict_new(card, model, task, tokens, (new, edges), mode, out, wanted)
            _conclude(display, out, {"nodes": count, "out": str(out), "mode": mode}, wanted)
            return
        if edges is not None:
            raise InvalidParameter("'--edges' are those of new nodes, so it must come with '--new'.")
        selected_nodes = select_nodes(nodes, task.labels, task.graph.removed)
        workload = Workload(selected_nodes, memory=limit, tokens=tokens, scratch=existing_folder(out))
        if spread:
            place = ClusterOptions(address, workers)
            blocks = stack.enter_context(predict_shards(opened, model, task.graph, out, workload, place, reporter))
        else:
            blocks = predict_blocks(model, card.reader, task.graph, workload, reporter)
        count = write_predictions(out, blocks, task.ids, card.reader, card.class_names, card.threshold, wanted)
    _conclude(display, out, {"nodes": count, "out": str(out)}, wanted)


def _conclude(display: Display, out: Path, summary: dict[str, Any], wanted: Coverage | None) -> None:
    """Say how many predictions were written, and what their sets or intervals hold."""
    whose = " of new nodes" if "mode" in summary else ""
    display.say(f"{summary['nodes']:,} predictions{whose} written to {out}")
    if wanted is not None:
        display.say(wanted.describe())
        summary |= {"coverage": wanted.share, "coverage_bound": wanted.bound, "coverage_nodes": wanted.nodes}
    display.result(summary)


def _predict_new(
    card: ModelCard,
    model: NodeModel,
    task: Task,
    tokens: Path | None,
    tables: tuple[Path, Path | None],
    mode: str,
    out: Path,
    wanted: Coverage | None,
) -> int:
    """Write the predictions of nodes that two tables describe; returns their number."""
    import numpy as np

    from polyformer.runs.application import new_nodes_of
    from polyformer.runs.prediction import write_predictions
    from polyformer.updates.change_tables import read_new_nodes

    change = read_new_nodes(*tables, task)
    predictor = new_nodes_of(card, model, task.graph, tokens)
    scores = predictor.predict(change.add_features, change.add_edges, mode, change.add_weights)
    ids = np.array(change.new_ids)
    blocks = [(np.arange(len(ids)), scores)]
    return write_predictions(out, blocks, ids, card.reader, card.class_names, card.threshold, wanted)
