"""A table between two marks of a page, which a command prints or writes."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["print_or_write"]


def print_or_write(description: str | None, text: str, begin: str, end: str) -> None:
    """Print a text, or put it between the marks of the page that ``--page`` names."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--page", type=Path)
    page = parser.parse_args().page
    if page is None:
        print(text)
        return
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
