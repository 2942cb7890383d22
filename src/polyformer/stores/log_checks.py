"""What the log of changed tokens may say: checks of its headers, of its row ids, and of what stands behind its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.errors import FileCorrupt
from polyformer.files import check_json, parse_json
from polyformer.files.data_schemas import TOKEN_RECORD

__all__ = ["check_row_ids", "check_tail", "parse_header"]

_AGAIN = "Restore it from a copy, or make the tokens again."


def parse_header(text: bytes, path: Path) -> dict[str, Any]:
    """What the header of a record says, checked against its schema."""
    header: dict[str, Any] = parse_json(text, path)
    check_json(header, TOKEN_RECORD, path)
    return header


def check_row_ids(ids: Iterable[np.ndarray], num_rows: int, path: Path) -> None:
    """Refuse a record of rows that the tokens do not have."""
    for part in ids:
        if len(part) and not (int(part.min()) >= 0 and int(part.max()) < num_rows):
            raise FileCorrupt(f"'{path}' names rows outside 0..{num_rows - 1}. {_AGAIN}")


def check_tail(content: Any, end: int, magic: bytes, is_header: Callable[[int], bool], path: Path) -> None:
    """Refuse a log in which a whole record follows a broken one: a kill breaks the last record only.

    Args:
        content: the bytes of the log.
        end: where the last whole record that can be reached ends.
        magic: the bytes with which a record begins.
        is_header: whether a whole header begins at a byte.
    """
    at = content.find(magic, end + 1)
    while at >= 0:
        if is_header(at):
            raise FileCorrupt(f"'{path}' is damaged at byte {end:,}: later changes of the tokens follow. {_AGAIN}")
        at = content.find(magic, at + 1)
