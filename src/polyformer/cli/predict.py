from __future__ import annotations

import contextlib
from pathlib import Path

import typer

from polyformer.cli.cluster_options import ADDRESS, PLACE, on_ray
from polyformer.cli.display import Display
from polyformer.cli.node_choice import select_nodes

__all__ = ["predict"]


def predict(
    run: Path = typer.Argument(..., metavar="RUN", help="A run directory, or a saved classifier."),
    data: str | None = typer.Argument(
        None, metavar="[PATH]", help="Another graph with the same features; the run's own data if left out."
    ),
    out: Path = typer.Option(..., help="The file to write, .parquet or .csv; an existing file is replaced."),
    nodes: str = typer.Option("all", help="all, labelled, or a file of node numbers (.npy or text, one a line)."),
    tokens: Path | None = typer.Option(
        None, help="A token directory of these nodes; by default tokens are computed. See `polyformer tokens`."
    ),
    memory: str | None = typer.Option(
        None,
        help="Use at most this memory, e.g. 8GiB; with ray, in each task; tokens that need more go through the disk. "
        "[default: 80 % of free]",
    ),
    engine: str = PLACE,
    address: str | None = ADDRESS,
    workers: int | None = typer.Option(
        None, min=1, help="With --engine ray: number of tasks at a time, each on one CPU. [default: one for each CPU]"
    ),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    json_only: bool = typer.Option(False, "--json", help="Print a summary as JSON on stdout and nothing else there."),
) -> None:
    """Write the predictions of a trained model as a table: node id, predicted class, a probability per class.

    Tables of another graph are read as those of the training were: the same columns, the same categories.

    Examples:

    - `polyformer predict runs/my-run --out predictions.parquet`

    - `polyformer predict runs/my-run another_graph/ --out predictions.parquet` — nodes it has never seen

    - `polyformer predict runs/my-run --tokens tokens/ --nodes labelled --out predictions.parquet` — nothing is computed
    again

    - `polyformer predict /shared/run --tokens /shared/tokens --engine ray --address auto --out /shared/p.parquet`
    """
    from polyformer.files import existing_folder
    from polyformer.machine import parse_bytes
    from polyformer.prediction import Resources, check_table_path, open_run_task, predict_blocks, write_predictions
    from polyformer.sharded_prediction import ClusterOptions, predict_shards
    from polyformer.training.saved_model import load_model

    display, spread = Display(json_only), on_ray(engine, address, workers)
    limit = None if memory is None else parse_bytes(memory)
    card, model = load_model(run)
    check_table_path(out)
    with display.stages() as loading:
        task = open_run_task(run, data, None if data_root is None else str(data_root), loading, display.say)
    selected_nodes = select_nodes(nodes, task.labels)
    with display.share("tokens") as progress, display.share("predicting") as predicted, contextlib.ExitStack() as stack:
        use = Resources(limit, tokens, existing_folder(out), display.say, progress, predicted)
        if spread:
            place = ClusterOptions(address, workers)
            blocks = stack.enter_context(predict_shards(run, model, task.graph, selected_nodes, out, use, place))
        else:
            blocks = predict_blocks(model, card.reader, task.graph, selected_nodes, use)
        count = write_predictions(out, blocks, task.ids, card.reader, card.class_names, card.threshold)
    display.say(f"{count:,} predictions written to {out}")
    display.result({"nodes": count, "out": str(out)})
