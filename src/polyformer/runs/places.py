"""Where the data, the preset and the directory of a run are, as paths that hold from anywhere."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path

from polyformer.datasets import DATASETS, data_name
from polyformer.files import is_there, reporting_io_errors
from polyformer.presets import is_preset_file
from polyformer.training.distributed import ALONE, Workers

__all__ = ["place_of_data", "place_of_preset", "run_directory"]

_RUNS = Path("runs")


def place_of_preset(preset: str) -> str:
    """A file as an absolute path, so that the run can go on from anywhere; a name as it is."""
    return str(Path(preset).resolve()) if is_preset_file(preset) else preset


def place_of_data(data: str) -> str:
    """A path as an absolute one, so that the run finds its data from anywhere; a data set's name as it is."""
    return data if data_name(data) in DATASETS or not is_there(data) else str(Path(data).resolve())


@contextlib.contextmanager
def run_directory(out: Path | None, data: str, model: str, workers: Workers = ALONE) -> Iterator[Path]:
    """``out``, or a new directory that the first worker makes for all; it is removed if it is empty at the end."""
    if out is not None:
        yield out
        return
    fresh = not _RUNS.exists()
    path = workers.first(lambda: _take_new_directory(data, model))
    try:
        yield path
    finally:
        for folder in (path, _RUNS) if fresh else (path,):
            with contextlib.suppress(OSError):  # not empty, or gone already
                if workers.rank == 0:
                    folder.rmdir()


def _take_new_directory(data: str, model: str) -> Path:
    """Make a directory that no other run has, even one that started in the same second."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(data).name.strip("./")) or "graph"
    base = _RUNS / f"{name}-{model}-{time.strftime('%Y%m%d-%H%M%S')}"
    others = (base.with_name(f"{base.name}-{count}") for count in itertools.count(2))
    with reporting_io_errors("the run", base):
        return next(path for path in itertools.chain([base], others) if _is_made(path))


def _is_made(path: Path) -> bool:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True
