from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from polyformer.cli.display import Display

if TYPE_CHECKING:
    import numpy as np

__all__ = ["tokens"]


def tokens(
    data: str = typer.Argument(..., metavar="DATASET|PATH", help="A data set or a graph directory."),
    out: Path = typer.Option(..., help="The token directory to write."),
    basis: str = typer.Option("chebyshev", help="See `polyformer bases`. A fixed basis is stored in Chebyshev form."),
    order: int = typer.Option(10, help="K."),
    self_loops: bool = typer.Option(False, "--self-loops", help="Use the operator of A + I."),
    engine: str = typer.Option("memory", help="memory: everything in memory."),
    memory: str | None = typer.Option(None, help="Refuse to use more, e.g. 8GiB. [default: 80 % of what is free]"),
    nodes: str = typer.Option("all", help="all, labelled, or a file of node numbers (.npy or text, one a line)."),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    json_only: bool = typer.Option(False, "--json", help="Print a summary as JSON on stdout and nothing else there."),
) -> None:
    """Compute polynomial tokens g_k(P)X once and store them, row after row, for training.

    Stored tokens of a fixed basis serve every fixed basis and every lower order of the same operator:
    `pf.open_tokens("tokens/", basis="bernstein", order=4)`.

    Examples:

    - `polyformer tokens minefield --order 6 --out tokens/`

    - `polyformer tokens my_graph/ --basis optimal --order 8 --nodes labelled --out tokens/`
    """
    from polyformer.bases import check_order, resolve_basis
    from polyformer.datasets import load_source
    from polyformer.errors import InvalidData, OutOfResources
    from polyformer.machine import available_memory, format_bytes, parse_bytes
    from polyformer.propagation.engine import ENGINES
    from polyformer.tokens import token_bytes, write_tokens

    display = Display(json_only)
    runner, fixed = ENGINES[engine](), resolve_basis(basis).fixed
    limit = int(0.8 * available_memory()) if memory is None else parse_bytes(memory)
    with display.stages() as loading:
        task = load_source(data, None if data_root is None else str(data_root), progress=loading, report=display.say)
    graph = task.graph
    if graph.features is None:
        raise InvalidData(f"Tokens need node features and '{data}' has none. Choose a graph with features.")
    chosen = _select_nodes(nodes, task.labels)
    rows = graph.num_nodes if chosen is None else len(chosen)
    size = token_bytes(rows, check_order(order), graph.num_features)
    needed = runner.memory_needed(graph.num_nodes, order, graph.features, fixed)
    display.say(f"{rows:,} nodes × {order + 1} tokens × {graph.num_features:,} features: {format_bytes(size)} on disk")
    display.say(f"needs about {format_bytes(needed)} of memory besides graph and features")
    if needed > limit:
        raise OutOfResources(f"That is more than the {format_bytes(limit)} of memory that may be used. Raise --memory.")
    start = time.monotonic()
    with display.share("tokens") as progress:
        write_tokens(graph, out, basis, order, self_loops, chosen, engine, progress)
    seconds = time.monotonic() - start
    display.say(f"written to {out} in {seconds:.1f} s")
    display.result({"out": str(out), "rows": rows, "order": order, "bytes": size, "seconds": round(seconds, 3)})


def _select_nodes(choice: str, labels: np.ndarray) -> np.ndarray | None:
    """What --nodes asks for: None for all."""
    import numpy as np

    from polyformer.errors import DataNotFound, InvalidData

    if choice == "all":
        return None
    if choice == "labelled":
        return np.flatnonzero(~np.isnan(labels) if labels.dtype.kind == "f" else labels >= 0)
    if not Path(choice).is_file():
        raise DataNotFound(f"'--nodes' must be all, labelled or a file of node numbers. There is no file '{choice}'.")
    try:
        return np.load(choice, allow_pickle=False) if choice.endswith(".npy") else np.loadtxt(choice, np.int64, ndmin=1)
    except ValueError as error:
        raise InvalidData(
            f"'{choice}' must hold one node number a line, or be a .npy file of them ({error})."
        ) from None
