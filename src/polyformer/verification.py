"""A directory of ours read whole: every byte of its files against the hashes that were written with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyformer.errors import DataNotFound, FileCorrupt
from polyformer.files import parse_json, read_json, read_small
from polyformer.files.data_schemas import TOKEN_MANIFEST
from polyformer.files.run_names import CONFIG, LABELS, WEIGHTS
from polyformer.graph import Graph
from polyformer.limits import MOST_JSON_BYTES
from polyformer.runs.directory import check_history, checkpoint_file, read_checkpoint, token_folders
from polyformer.runs.metrics_file import check_best_score
from polyformer.runs.run import Run
from polyformer.runs.saved_model import read_weights
from polyformer.stores.directory import StoredTokens
from polyformer.tasks import Task

__all__ = ["check_epochs", "verify_directory"]

_UNSEALED = "It was written by an earlier version, so only what that version hashed is checked."


def verify_directory(directory: str | Path) -> list[str]:
    """Read all of a graph directory, a token directory, a run directory or a saved classifier.

    Returns:
        One sentence for each part that was found whole.

    Raises:
        DataNotFound: there is no such directory, or it is none of ours.
        FileCorrupt: a part is damaged; the sentence names the file.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise DataNotFound(f"There is no directory '{folder}'. Check the path.")
    for name, read in (("manifest.json", _read_data), (CONFIG, _read_model)):
        if (folder / name).exists():
            return list(read(folder))
    raise DataNotFound(
        f"'{folder}' is no directory of polyformer: it has neither a manifest.json nor a {CONFIG}. Check the path."
    )


def _read_data(folder: Path) -> Iterator[str]:
    path = folder / "manifest.json"
    try:
        content: Any = parse_json(read_small(path, MOST_JSON_BYTES), path)
    except (OSError, ValueError) as error:
        raise FileCorrupt(f"'{path}' cannot be read ({error}). Restore it from a copy or make it again.") from None
    if isinstance(content, dict) and content.get("kind") == "tokens":
        manifest = read_json(path, TOKEN_MANIFEST)
        tokens = StoredTokens(folder, verify=True)
        _ = tokens.recurrence
        yield _sentence(f"'{folder}' holds the tokens of {len(tokens):,} nodes.", manifest)
        if tokens.log_path.exists() and tokens.log_path.stat().st_size > tokens.log_bytes:
            yield f"The last change in '{tokens.log_path}' is left out, as it is unfinished or damaged: update again."
        return
    graph = Graph.load(folder, verify=True)
    _ = graph.history
    task = Task.load(folder)
    parts = "a graph" if not len(task.splits) and task.ids is None else "a graph, its labels, splits and ids"
    yield _sentence(f"'{folder}' holds {parts}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges.", content)


def _read_model(folder: Path) -> Iterator[str]:
    if (folder / WEIGHTS).exists():
        card = Run.open_model(folder).card
        read_weights(folder, card)
        yield f"'{folder}' holds a trained model, {card.model}."
    if (folder / LABELS).exists():
        labels = Run.open_model(folder).labels
        if labels is not None:
            yield f"It is shown the labels of {len(labels.nodes):,} training nodes."
    if "data" in parse_json(read_small(folder / CONFIG, MOST_JSON_BYTES), folder / CONFIG):
        run = Run.open(folder)
        result, epochs = run.result, check_epochs(run)
        yield f"The run has {epochs:,} epochs and " + ("a result." if result is not None else "no result yet.")
        if checkpoint_file(folder).exists():
            yield f"Its checkpoint is of epoch {read_checkpoint(folder).epoch:,}."
        for tokens in token_folders(folder):
            yield from _read_data(tokens)


def check_epochs(run: Run) -> int:
    """How many epochs ``metrics.jsonl`` tells of: all of them, where the run has ended."""
    result, epochs = run.result, len(run.metrics)
    if result is not None and epochs != result["epochs"]:
        raise FileCorrupt(
            f"'{run.path / 'metrics.jsonl'}' tells of {epochs:,} epochs, and the run had {result['epochs']:,}. Lines "
            f"are missing at its end, or were added. Restore it from a copy."
        )
    if result is not None:
        check_history(run.path)
        check_best_score(run.path, run.path / "result.json", result["best_epoch"], result["val"])
    return epochs


def _sentence(text: str, manifest: dict[str, Any]) -> str:
    return text if "files" in manifest else f"{text} {_UNSEALED}"
