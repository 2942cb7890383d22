"""What the page on graphs that change shows is typed here."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.documentation import marked_blocks
from tests.updates.test_command_line import run

SMALL = "--set epochs=2 --set hidden_channels=8 --set heads=2 --no-report"


@pytest.mark.slow
def test_commands_and_tables_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = [block for language, block in marked_blocks("changing-graphs.md") if language == ""]
    commands = [block for language, block in marked_blocks("changing-graphs.md") if language == "sh"]
    nodes, edges = (block for block in tables if block.startswith("action"))
    names = ["ann", "bob", "cat", *(f"p{i}" for i in range(20))]
    rows = [f"{name},{20 + i},{'Rome' if i % 2 else 'Oslo'},{'yes' if i % 3 else 'no'}" for i, name in enumerate(names)]
    Path("tables").mkdir()
    Path("tables/nodes.csv").write_text("id,age,city,label\n" + "\n".join(rows) + "\n")
    links = [f"{one},{other}" for one, other in zip(names, [*names[2:], *names[:2]], strict=True)]
    Path("tables/edges.csv").write_text("source,target\n" + "\n".join(links) + "\n")
    Path("monday").mkdir()
    Path("monday/nodes.csv").write_text(nodes)
    Path("monday/edges.csv").write_text(edges)
    Path("people.csv").write_text("id,age,city\nyan,,Rome\n")
    Path("friends.csv").write_text("source,target\nyan,cat\n")
    typed = 0
    for line in "\n".join(commands).splitlines():
        words = shlex.split(line, comments=True)[1:]
        if words:
            small = shlex.split(SMALL) if words[0] == "train" else []
            assert run(*words, *small) == 0, line
            typed += 1
    assert typed >= 8
