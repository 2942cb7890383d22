from __future__ import annotations

from pathlib import Path

import typer

from polyformer.cli.display import Display

__all__ = ["predict"]


def predict(
    run: Path = typer.Argument(..., metavar="RUN", help="A run directory, or a saved classifier."),
    data: str | None = typer.Argument(
        None, metavar="[PATH]", help="Another graph with the same features; the run's own data if left out."
    ),
    out: Path = typer.Option(..., help="The Parquet file to write."),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    json_only: bool = typer.Option(False, "--json", help="Print a summary as JSON on stdout and nothing else there."),
) -> None:
    """Write the predictions of a trained model as Parquet: node id, predicted class, a probability per class.

    Examples:

    - `polyformer predict runs/my-run --out predictions.parquet`

    - `polyformer predict runs/my-run another_graph/ --out predictions.parquet` — nodes it has never seen
    """
    import numpy as np

    from polyformer.errors import InvalidParameter
    from polyformer.prediction import open_run_graph, predict_scores, write_predictions
    from polyformer.training.saved_model import load_model

    display = Display(json_only)
    card, model = load_model(run)
    with display.stages() as loading:
        graph, ids = open_run_graph(run, data, None if data_root is None else str(data_root), loading)
    if out.is_dir():
        raise InvalidParameter(f"'--out' must be a file. Got the directory '{out}'. Try {out / 'predictions.parquet'}.")
    with display.share("predicting") as progress:
        scores = predict_scores(model, card.reader, graph, progress=progress)
    write_predictions(out, scores, np.arange(graph.num_nodes) if ids is None else ids, card.reader, card.class_names)
    display.say(f"{graph.num_nodes:,} predictions written to {out}")
    display.result({"nodes": graph.num_nodes, "out": str(out)})
