from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyformer.cli.display import Display
from polyformer.cli.options import JsonSummary, TrainedRun

__all__ = ["export"]


def export(
    run: TrainedRun,
    out: Annotated[
        Path,
        typer.Option(
            help="The file to write: .onnx for ONNX runtimes, .pt2 for torch.export.load; an existing file is replaced."
        ),
    ],
    json_only: JsonSummary = False,
) -> None:
    """Write a trained model as one file that runs without polyformer: tokens of nodes in, probabilities out.

    Models on tokens in a fixed basis can be exported: polyformer, polyattn, selfattn, unifilter, nagphormer. The file
    takes tokens of any number of nodes, (n, K+1, d) float32, and gives probabilities (n, C), or values (n, 1) of a
    regression. Beside it stands `<out>.json`, which says how tokens are made of a graph: scaling of the features,
    operator, order, mixing matrix of the basis, names of the classes. The metadata of the file say the same.

    Before anything is written, answers of the file are compared with answers of the run.

    Examples:

    - `polyformer export runs/my-run --out model.onnx` — for onnxruntime, in any language; needs the extra `export`

    - `polyformer export runs/my-run --out model.pt2` — for programs that have torch

    - `python examples/serve_without_torch.py model.onnx my_graph/` — tokens and predictions with numpy, scipy and
    onnxruntime alone
    """
    from polyformer.runs.exporting import check_export_path
    from polyformer.runs.run import Run

    display = Display(json_only)
    check_export_path(out)
    written = Run.open_model(run).export(out)
    display.say(f"model written to {written.path}; {written.recipe.name} says how its tokens are made")
    display.say(f"on made-up tokens its answers differ from the run's by {written.largest_difference:.1g} at most")
    display.result(
        {
            "out": str(written.path),
            "recipe": str(written.recipe),
            "largest_difference": written.largest_difference,
        }
    )
