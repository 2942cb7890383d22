"""What the pages under ``docs/`` show."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

__all__ = ["blocks", "marked_blocks", "page"]

_DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


def page(name: str, section: str | None = None) -> str:
    """The text of a page, or of the section with this heading."""
    text = (_DOCS / name).read_text(encoding="utf-8")
    if section is None:
        return text
    [part] = [part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(f"{section}\n")]
    return part


def blocks(name: str, section: str | None = None) -> list[str]:
    """The code blocks of a page or of a section, without their indentation."""
    return [block for _, block in marked_blocks(name, section)]


def marked_blocks(name: str, section: str | None = None) -> list[tuple[str, str]]:
    """The code blocks with the languages that they are marked with."""
    return [(language, textwrap.dedent(block)) for language, block in _BLOCK.findall(page(name, section))]
