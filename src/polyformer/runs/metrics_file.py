"""``metrics.jsonl``: one line an epoch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from polyformer.errors import FileCorrupt, WriteFailed
from polyformer.files import (
    RESTORE,
    append_line,
    finite,
    json_line,
    open_in_place,
    read_json_lines,
    reporting_io_errors,
    write_whole,
)
from polyformer.files.run_schemas import EPOCH
from polyformer.reporter import EpochRecord, Reporter

__all__ = [
    "METRICS_FILE",
    "check_best_score",
    "drop_metrics_after",
    "history_digest",
    "metrics_writer",
    "read_metrics",
    "removed_run",
]

METRICS_FILE = "metrics.jsonl"


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Every epoch so far, with None for a score that is not a number; a line that a kill cut off is left out."""
    path = run / METRICS_FILE
    records = list(read_json_lines(path, EPOCH)) if path.exists() else []
    for number, record in enumerate(records, 1):
        if record["epoch"] != number:
            raise FileCorrupt(
                f"'{path}' is damaged: its line {number} is of epoch {record['epoch']}. Lines are missing, repeated "
                f"or in another order. {RESTORE}"
            )
    return records


def history_digest(run: Path) -> str:
    """A hash of all epochs so far."""
    return hashlib.blake2b(json.dumps(read_metrics(run), sort_keys=True).encode(), digest_size=12).hexdigest()


def check_best_score(run: Path, path: Path, epoch: int, score: float | None) -> None:
    """Refuse a file of a run whose best epoch had another validation score than ``metrics.jsonl`` tells.

    Args:
        path: the file.
        epoch: the best epoch; one that a kill has taken from the end of ``metrics.jsonl`` is not looked at.
        score: its validation score.
    """
    recorded = [record["val"] for record in read_metrics(run) if record["epoch"] == epoch]
    if recorded and recorded[-1] != score:
        raise FileCorrupt(
            f"'{path}' tells of the validation score {score} in epoch {epoch}, and '{run / METRICS_FILE}' of "
            f"{recorded[-1]}. They come from different runs. Put the files of one run together again."
        )


def drop_metrics_after(run: Path, epoch: int) -> None:
    """Forget epochs that the checkpoint has not seen: they will be run again."""
    kept = [f"{json_line(record, EPOCH)}\n" for record in read_metrics(run) if record["epoch"] <= epoch]
    with write_whole(run / METRICS_FILE) as file:
        file.write("".join(kept).encode())


def removed_run(run: Path) -> WriteFailed:
    """What is raised where somebody has removed the directory of a run that goes on."""
    return WriteFailed(f"The run directory '{run}' was removed while it was in use. Start a new run.")


@contextmanager
def metrics_writer(run: Path) -> Iterator[Reporter]:
    """A reporter that appends every epoch to ``metrics.jsonl``."""
    with open_in_place(run / METRICS_FILE) as file:
        file.seek(0, os.SEEK_END)
        yield _MetricsWriter(run, file)


class _MetricsWriter(Reporter):
    def __init__(self, run: Path, file: IO[bytes]) -> None:
        self._run, self._file = run, file

    def epoch(self, record: EpochRecord, best_epoch: int, best_score: float) -> None:
        if os.fstat(self._file.fileno()).st_nlink == 0:
            raise removed_run(self._run)
        with reporting_io_errors("metrics", self._run):
            append_line(self._file, json_line(asdict(record) | {"val": finite(record.val)}, EPOCH))
