"""What the pages tell a newcomer to type, as an entry of a table: the laws of the contract hold it to the rest."""

from __future__ import annotations

import importlib
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from polyformer.registry import Registry
from tests.documentation import blocks, page

__all__ = ["BASIS", "MODEL", "Recipe"]

_FILE = re.compile(r"Write `src/polyformer/(\w+)/(\w+\.py)`")
_LINE = re.compile(r'`"([\w-]+)": "(polyformer\.[\w.]+:\w+)",`')
_FOLDER = tempfile.TemporaryDirectory()
"""The files of the recipes, which packages find besides their own until the tests end."""


@dataclass(frozen=True)
class Recipe:
    """An entry of a table, as a page prints it: its name and the ``module:attribute`` it stands for."""

    name: str
    entry: str

    def added_to(self, table: Registry[Any]) -> Registry[Any]:
        """A copy of the table that has the line of the page too."""
        return Registry(table.kind, {**table._entries, self.name: self.entry})

    def register(self, table: Registry[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """Add the line to the table itself for the duration of a test."""
        monkeypatch.setitem(table._entries, self.name, self.entry)


def _type(name: str) -> Recipe:
    """Do the steps of a page: write the file that it prints, and read the line that it adds."""
    text = page(name)
    [(package, file)], [(entry_name, entry)] = _FILE.findall(text), _LINE.findall(text)
    [code] = [block for block in blocks(name) if f"class {entry.split(':')[1]}(" in block]
    folder = Path(_FOLDER.name, package)
    folder.mkdir()
    (folder / file).write_text(code, encoding="utf-8")
    importlib.import_module(f"polyformer.{package}").__path__.append(str(folder))
    return Recipe(entry_name, entry)


BASIS = _type("../CONTRIBUTING.md")
MODEL = _type("baselines.md")
