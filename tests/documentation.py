"""What the pages under ``docs/`` show."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

__all__ = ["blocks", "page"]

_DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def page(name: str) -> str:
    """The text of a page."""
    return (_DOCS / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[str]:
    """The code blocks of a page, without their indentation."""
    return [textwrap.dedent(block) for block in _BLOCK.findall(page(name))]
