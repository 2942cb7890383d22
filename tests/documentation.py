"""What the pages under ``docs/`` show."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

__all__ = ["blocks", "marked_blocks", "page"]

_DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def page(name: str) -> str:
    """The text of a page."""
    return (_DOCS / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[str]:
    """The code blocks of a page, without their indentation."""
    return [block for _, block in marked_blocks(name)]


def marked_blocks(name: str) -> list[tuple[str, str]]:
    """The code blocks of a page with the languages that they are marked with."""
    return [(language, textwrap.dedent(block)) for language, block in _BLOCK.findall(page(name))]
