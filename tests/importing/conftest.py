from __future__ import annotations

from pathlib import Path

import pytest

from tests.importing.example import Example, make_example, write_table


@pytest.fixture
def example() -> Example:
    return make_example()


@pytest.fixture
def tables(tmp_path: Path, example: Example) -> Path:
    """A folder with edges.csv and nodes.csv."""
    folder = tmp_path / "mytables"
    folder.mkdir()
    write_table(example.edges(), folder / "edges.csv")
    write_table(example.nodes(), folder / "nodes.csv")
    return folder
