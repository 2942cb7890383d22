"""What the pages show is typed here as it stands."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.test_cli import FAST, run

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[str]:
    """The code blocks of a page, without their indentation."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [textwrap.dedent(block) for block in re.findall(r"^ *```\w*\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)]


def test_the_tables_of_your_own_graph_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    edges, nodes, commands = blocks("your-graph.md")[:3]
    Path("mytables").mkdir()
    Path("mytables/edges.csv").write_text(edges)
    Path("mytables/nodes.csv").write_text(nodes)
    options = {"train": ["--out", "RUN", *FAST]}
    for line in commands.splitlines():
        program, verb, *arguments = line.split()
        assert program == "polyformer"
        assert run(verb, *arguments, *options.get(verb, [])) == 0
    assert "2 val, 2 test" in capsys.readouterr().out
    assert "ann" in pq.read_table("predictions.parquet")["node"].to_pylist()
