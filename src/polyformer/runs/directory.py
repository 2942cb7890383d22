"""The directory of a run: where its files are, who may write to it, and what a failed start leaves there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from polyformer.errors import FileCorrupt, OutputBusy, OutputExists
from polyformer.files import (
    RUN,
    check_identity,
    finite,
    locked,
    partial_place,
    read_json,
    refuse_existing,
    reporting_io_errors,
    run_identity,
    write_json,
    write_whole,
)
from polyformer.files.run_schemas import RESULT
from polyformer.models.parts.token_binding import label_tokens_folder
from polyformer.runs.metrics_file import METRICS_FILE, check_best_score, history_digest, read_metrics
from polyformer.runs.saved_model import WEIGHTS
from polyformer.training.checkpoint import Checkpoint

__all__ = [
    "check_history",
    "check_new",
    "checkpoint_file",
    "is_unused",
    "locked_directory",
    "read_checkpoint",
    "read_result",
    "removing_failed_start",
    "replace_checkpoint",
    "token_folders",
    "tokens_folder",
    "write_result",
]


_HISTORY = "history"
"""Under this name the result has the hash of the epochs that led to it."""


def checkpoint_file(run: Path) -> Path:
    """The file from which training goes on."""
    return run / "checkpoint" / "state.safetensors"


def read_checkpoint(run: Path) -> Checkpoint:
    """The checkpoint of a run, which has one; that of another run is refused."""
    checkpoint = Checkpoint.load(checkpoint_file(run))
    check_best_score(run, checkpoint_file(run), checkpoint.best_epoch, finite(checkpoint.best_score))
    return checkpoint


def tokens_folder(run: Path) -> Path:
    """Where tokens are kept that do not fit in memory."""
    return run / "tokens"


def token_folders(run: Path) -> list[Path]:
    """The folders of tokens that a run has: of features, and beside them of known labels."""
    own = tokens_folder(run)
    return [folder for folder in (own, *sorted(run.glob(f"{label_tokens_folder(own, '*').name}"))) if folder.exists()]


def read_result(run: Path) -> dict[str, Any] | None:
    """The result of a run, once it has finished; that of another run is refused."""
    path = run / "result.json"
    if not path.exists():
        return None
    content: dict[str, Any] = read_json(path, RESULT)
    check_identity(path, content)
    return {name: value for name, value in content.items() if name not in (RUN, _HISTORY)}


def write_result(run: Path, result: dict[str, Any]) -> None:
    """Finish a run."""
    with reporting_io_errors("the result", run):
        belongs = {RUN: run_identity(run), _HISTORY: history_digest(run)}
        write_json(run / "result.json", result | belongs, RESULT)


def check_history(run: Path) -> None:
    """Refuse a ``metrics.jsonl`` that is not that of the run's result; earlier versions say nothing of it."""
    path = run / "result.json"
    if path.exists():
        content = read_json(path, RESULT)
        if content.get(_HISTORY, "") not in ("", history_digest(run)):
            raise FileCorrupt(
                f"'{run / METRICS_FILE}' and '{path}' come from different runs, or epochs have been changed. Put the "
                f"files of one run together again."
            )


def is_unused(run: Path) -> bool:
    """Whether a later start would find nothing here to go on from: no epoch, no model, no prepared tokens."""
    tokens = tokens_folder(run)
    places = (checkpoint_file(run), run / WEIGHTS, tokens, partial_place(tokens))
    return not any(place.exists() for place in places) and not read_metrics(run)


def replace_checkpoint(run: Path, file: Path) -> None:
    """Go on from another checkpoint than the last one written here."""
    place = checkpoint_file(run)
    with reporting_io_errors("a checkpoint", place), write_whole(place) as target:
        target.write(file.read_bytes())


def check_new(run: Path) -> None:
    """Refuse the place of a new run where something is already."""
    try:
        refuse_existing(run)
    except OutputExists:
        raise OutputExists(
            f"The run directory '{run}' already exists. Choose another --out, or continue it with --resume."
        ) from None


@contextmanager
def locked_directory(run: Path, patience: float = 0.0) -> Iterator[None]:
    """Keep a second process from writing to a run; see :meth:`polyformer.runs.run.Run.locked`."""
    busy = OutputBusy(f"Another process is training in '{run}'. Wait for it or choose another --out.")
    with locked(run / ".lock", busy, patience):
        yield


@contextmanager
def removing_failed_start(out: Path) -> Iterator[None]:
    """If the block fails before the run directory ``out`` holds anything to go on from, leave the disk as it was.

    Folders above ``out`` that the block made go too. A directory that was in use before the block is left alone.
    """
    existed = out.exists()
    if existed and (not out.is_dir() or any(out.iterdir())):
        yield
        return
    missing = [folder for folder in out.absolute().parents if not folder.exists()]
    try:
        yield
    except (OutputExists, OutputBusy):  # another process took the place meanwhile
        raise
    except BaseException:
        if is_unused(out):
            shutil.rmtree(out, ignore_errors=True)
            with suppress(OSError):
                if existed:
                    out.mkdir()
                for folder in missing:
                    folder.rmdir()
        raise
