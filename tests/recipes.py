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

__all__ = ["BASIS", "DATASET", "ENGINE", "MODEL", "PAGE", "Recipe", "write_module"]

PAGE = "extending.md"

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


def write_module(name: str, section: str) -> None:
    """Write the file that a section of a page prints first, where its package finds it."""
    [(package, file)] = _FILE.findall(page(name, section))
    folder = Path(_FOLDER.name, package)
    folder.mkdir(exist_ok=True)
    (folder / file).write_text(blocks(name, section)[0], encoding="utf-8")
    paths = importlib.import_module(f"polyformer.{package}").__path__
    if str(folder) not in paths:
        paths.append(str(folder))


def _type(name: str, section: str) -> Recipe:
    """Do the steps of a section: write the file that it prints, and read the line that it adds."""
    write_module(name, section)
    [(entry_name, entry)] = _LINE.findall(page(name, section))
    return Recipe(entry_name, entry)


BASIS = _type("../CONTRIBUTING.md", "Add a basis in one file")
MODEL = _type("baselines.md", "Add a model")
DATASET = _type(PAGE, "Add a data set")
ENGINE = _type(PAGE, "Add an engine")
