"""The records of one plan: a file of lines, and the single files that earlier versions wrote."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polyformer.errors import FileCorrupt
from polyformer.files import append_json_line, read_json, read_json_lines, write_json_lines
from polyformer.files.run_schemas import RECORD, RECORD_LINE

__all__ = ["PlanRecords"]

Record = dict[str, Any]


class PlanRecords:
    """The records of the plan ``plan`` in ``folder``: the lines of ``<plan>.jsonl``, and ``<plan>/<run>.json``.

    Every line carries the name of its run. Where several lines have a name, the last one counts: a run may have been
    made again. A single file counts before a line, because a program that writes single files found no line that it
    could read.
    """

    def __init__(self, folder: Path, plan: str) -> None:
        self.path = folder / f"{plan}.jsonl"
        self._singles = folder / plan
        self._state: object = None
        self._records: dict[str, Record] = {}

    def read(self) -> dict[str, Record]:
        """Every record, by the name of its run; the files are read again only if they have changed."""
        state = self._file_state()
        if state != self._state:
            self._records = self._read_lines() | {path.stem: _read_single(path) for path in self.single_files()}
            self._state = state
        return self._records

    def single_files(self) -> list[Path]:
        """The files of one record each that earlier versions wrote."""
        return sorted(self._singles.glob("*.json"))

    def append(self, name: str, record: Record) -> None:
        """Add the record of a run; the caller holds the lock of the folder."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_json_line(self.path, {"name": name} | record, RECORD_LINE)
        (self._singles / f"{name}.json").unlink(missing_ok=True)

    def fold(self, more: Mapping[str, Record]) -> int:
        """Write all records, and ``more``, as lines sorted by name, and remove the single files.

        Returns how many records there are more than there were lines; the caller holds the lock of the folder.
        """
        lines = self._read_lines()
        records = {**self.read(), **more}
        if list(lines.items()) != sorted(records.items()):
            named = ({"name": name} | record for name, record in sorted(records.items()))
            write_json_lines(self.path, named, RECORD_LINE)
        for path in self.single_files():
            path.unlink()
        with contextlib.suppress(OSError):  # no such folder, or one that holds other files
            self._singles.rmdir()
        return len(records.keys() - lines.keys())

    def _read_lines(self) -> dict[str, Record]:
        records = {}
        try:
            for line in read_json_lines(self.path, RECORD_LINE):
                records[line.pop("name")] = line
        except FileCorrupt as error:
            raise FileCorrupt(
                f"'{self.path}' holds a line that is not the record of a run. Remove the line to make its run again. "
                f"({error})"
            ) from None
        return records

    def _file_state(self) -> object:
        """What differs once a file has changed."""
        paths = [path for path in (self.path, *self.single_files()) if path.exists()]
        return [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths]


def _read_single(path: Path) -> Record:
    try:
        record: Record = read_json(path, RECORD)
    except FileCorrupt as error:
        raise FileCorrupt(f"'{path}' is not the record of a run. Remove it to run that again. ({error})") from None
    return record
