"""The directory of a run: what was asked, what happened each epoch, the model, the result."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from polyformer.errors import DataNotFound, FileCorrupt, OutputBusy, OutputExists
from polyformer.files import (
    finite,
    new_directory,
    read_json,
    reporting_io_errors,
    require_keys,
    try_lock,
    write_json,
    write_whole,
)
from polyformer.stores.writer import unfinished_tokens
from polyformer.training.loop import EpochRecord
from polyformer.training.request import RunRequest
from polyformer.training.saved_model import WEIGHTS

__all__ = ["RunDirectory", "removing_failed_start"]

_TASK_KEYS = ("name", "protocol", "fingerprint", "nodes", "edges", "features", "classes", "train", "val", "test")
_RESULT_KEYS = (
    "metric",
    "val",
    "test",
    "best_epoch",
    "epochs",
    "seconds",
    "preparation_seconds",
    "peak_memory_bytes",
    "parameters",
)
_EPOCH_KEYS = tuple(field.name for field in fields(EpochRecord))


class RunDirectory:
    """``config.json``, ``metrics.jsonl``, ``checkpoint/state.safetensors``, ``model.safetensors``, ``result.json``.

    And ``tokens/``, if they do not fit in memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> RunDirectory:
        """Make a new one; it appears together with its ``config.json``."""
        try:
            with new_directory(path) as folder:
                write_json(folder / "config.json", config)
        except OutputExists:
            raise OutputExists(
                f"The run directory '{path}' already exists. Choose another --out, or continue it with --resume."
            ) from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """One that exists; its ``config.json`` says all that is needed."""
        if not path.is_dir():
            raise DataNotFound(f"There is no run directory '{path}'. Check the path, or start a run with --out.")
        run = cls(path)
        config, file = run.config, path / "config.json"
        if "data" not in config:
            raise FileCorrupt(
                f"'{path}' is not a run directory: its config.json does not say which data it was trained on."
            )
        require_keys(config, (*(field.name for field in fields(RunRequest)), "card", "task"), file)
        for part, keys in (("settings", ()), ("card", ("metric",)), ("task", _TASK_KEYS)):
            require_keys(config[part], keys, file)
        return run

    @property
    def config(self) -> dict[str, Any]:
        """All that is needed to repeat the run."""
        content = read_json(self.path / "config.json", "a run directory")
        if not isinstance(content, dict):
            raise FileCorrupt(f"'{self.path / 'config.json'}' does not describe a run.")
        return content

    def update_memory(self, memory: int) -> None:
        """Record that the run goes on with another bound on memory."""
        config = self.config
        if config["memory"] != memory:
            with reporting_io_errors("config.json", self.path):
                write_json(self.path / "config.json", config | {"memory": memory})

    @property
    def is_unused(self) -> bool:
        """Whether a later start would find nothing here to go on from: no epoch, no model, no prepared tokens."""
        places = (self.checkpoint, self.path / WEIGHTS, self.tokens, unfinished_tokens(self.tokens))
        return not any(place.exists() for place in places) and not self.read_metrics()

    @property
    def checkpoint(self) -> Path:
        """The file from which training goes on."""
        return self.path / "checkpoint" / "state.safetensors"

    @property
    def tokens(self) -> Path:
        """Where tokens are kept that do not fit in memory."""
        return self.path / "tokens"

    @property
    def result(self) -> dict[str, Any] | None:
        """The result, once the run has finished."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        return require_keys(read_json(path, "a finished run"), _RESULT_KEYS, path)

    def write_result(self, result: dict[str, Any]) -> None:
        """Finish the run."""
        with reporting_io_errors("the result", self.path):
            write_json(self.path / "result.json", result)

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """Keep a second process from writing to this run; released when this process ends, however it ends.

        Args:
            patience: seconds to wait for a process that is about to end.
        """
        deadline = time.monotonic() + patience
        with (self.path / ".lock").open("wb") as file:
            while not try_lock(file):
                if time.monotonic() >= deadline:
                    raise OutputBusy(
                        f"Another process is training in '{self.path}'. Wait for it or choose another --out."
                    )
                time.sleep(0.1)
            yield

    def replace_checkpoint(self, file: Path) -> None:
        """Go on from another checkpoint than the last one written here."""
        with reporting_io_errors("a checkpoint", self.checkpoint), write_whole(self.checkpoint) as target:
            target.write(file.read_bytes())

    def read_metrics(self) -> list[dict[str, Any]]:
        """Every epoch so far, with None for a score that is not a number; a line that a kill cut off is left out."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        records = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line, parse_constant=lambda _: None)
            except json.JSONDecodeError:
                break
            records.append(require_keys(record, _EPOCH_KEYS, path))
        return records

    def drop_metrics_after(self, epoch: int) -> None:
        """Forget epochs that the checkpoint has not seen: they will be run again."""
        kept = [json.dumps(record) + "\n" for record in self.read_metrics() if record["epoch"] <= epoch]
        path = self.path / "metrics.jsonl"
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(kept), encoding="utf-8")
        os.replace(temporary, path)

    @contextmanager
    def metrics_writer(self) -> Iterator[Any]:
        """A function that appends one epoch to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:

            def write(record: EpochRecord) -> None:
                with reporting_io_errors("metrics", self.path):
                    file.write(json.dumps(asdict(record) | {"val": finite(record.val)}) + "\n")
                    file.flush()

            yield write


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
        if RunDirectory(out).is_unused:
            shutil.rmtree(out, ignore_errors=True)
            with suppress(OSError):
                if existed:
                    out.mkdir()
                for folder in missing:
                    folder.rmdir()
        raise
