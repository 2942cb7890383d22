"""The verb that the page on extending tells a newcomer to add, typed as the page says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

from polyformer import cli
from polyformer.graph import Graph
from polyformer.tasks import Task
from tests import recipes
from tests.documentation import blocks
from tests.smoke import test_every_verb as every_verb

SECTION = "Add a verb"


@pytest.fixture(scope="module")
def command_line() -> ModuleType:
    """The command line with the import and the name that the page adds."""
    recipes.write_module(recipes.PAGE, SECTION)
    import_line = blocks(recipes.PAGE, SECTION)[1]
    [name] = re.findall(r"import (\w+)$", import_line)
    source = Path(cli.__file__).read_text(encoding="utf-8")
    first_import, loop = "from polyformer.cli.bases import", "):\n    app.command()(verb)"
    assert source.count(first_import) == source.count(loop) == 1
    source = source.replace(first_import, import_line + first_import).replace(loop, f"    {name},\n{loop}")
    module = ModuleType("polyformer_cli_with_a_verb")
    exec(compile(source, "cli/__init__.py", "exec"), vars(module))
    return module


def test_the_verb_of_the_page_does_what_its_line_says(
    command_line: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Graph([[0, 1, 2, 3], [1, 2, 3, 4]], np.eye(5))
    Task("path", path, np.array([0, 1, 0, 1, 0]), [], "none").save(tmp_path / "graph")
    [command] = re.findall(r'^"(.+)",$', blocks(recipes.PAGE, SECTION)[2])
    with pytest.raises(SystemExit) as end:
        command_line.main(shlex.split(command))
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out) == {"nodes_by_degree": [0, 2, 3]}


def test_its_help_and_its_bad_input_are_those_of_every_verb(
    command_line: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = CliRunner().invoke(command_line.app, ["degrees", "--help"])
    assert shown.exit_code == 0
    assert "Count the nodes of a graph by their number of neighbours" in shown.output
    with pytest.raises(SystemExit) as end:
        command_line.main(["degrees", "minefeild"])
    assert end.value.code == 2
    assert "Did you mean 'minefield'?" in capsys.readouterr().err


def test_a_verb_without_a_command_would_be_noticed(command_line: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every_verb, "app", command_line.app)
    with pytest.raises(AssertionError):
        every_verb.test_no_verb_is_left_out()
    [command] = re.findall(r'^"(.+)",$', blocks(recipes.PAGE, SECTION)[2])
    monkeypatch.setattr(every_verb, "COMMANDS", [*every_verb.COMMANDS, command])
    every_verb.test_no_verb_is_left_out()
