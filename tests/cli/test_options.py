"""Options that the fields of a dataclass declare: the dataclass and the command say the same."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from polyformer.cli import app
from polyformer.cli.options import options_from
from polyformer.importing.options import ImportOptions
from polyformer.runs.options import RunOptions
from polyformer.settings import setting

DECLARED = {"import": ImportOptions, "train": RunOptions}
"""Verbs and the dataclasses that declare their options."""

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Options:
    """One field of each type that an option can have."""

    seed: int = setting(0, "Seed for drawing the splits.")
    rate: float = setting(0.5, "Rate of dropout.")
    loops: bool = setting(False, "Keep self-loops.")
    columns: tuple[str, ...] = setting((), "Columns to read.", metavar="A,B")
    table: Path | None = setting(None, "Table to read. [default: the first]")
    weight: int = setting(100, "Weight in percent.", parse=lambda text: int(text.rstrip("%")))
    hidden: int = 7


@pytest.mark.parametrize("verb", DECLARED)
def test_each_declared_field_is_an_option(verb: str) -> None:
    options = {option.name: option for option in COMMANDS[verb].params}
    for field in fields(DECLARED[verb]):
        if "help" not in field.metadata:
            continue
        option = options[field.name]
        assert option.help.startswith(field.metadata["help"])
        [shown] = re.findall(r"\[default: (.+?)\]$", option.help) or [None]
        if field.default in (None, "", ()):
            assert option.default is None
        else:
            parse = field.metadata.get("parse", type(field.default))
            assert parse(shown) == field.default


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {}),
        (["--seed", "3", "--rate", "0.25"], {"seed": 3, "rate": 0.25}),
        (["--seed", "0"], {"seed": 0}),
        (["--loops"], {"loops": True}),
        (["--no-loops"], {"loops": False}),
        (["--columns", "a, b"], {"columns": ("a", "b")}),
        (["--columns", ""], {"columns": ()}),
        (["--table", "nodes.csv", "--weight", "30%"], {"table": Path("nodes.csv"), "weight": 30}),
    ],
)
def test_a_command_gets_what_was_given(arguments: list[str], expected: dict[str, Any]) -> None:
    received: dict[str, Any] = {}
    program = typer.Typer()

    @program.command()
    @options_from(Options, "given")
    def command(given: dict[str, Any]) -> None:
        received.update(given)

    result = CliRunner().invoke(program, arguments)
    assert result.exit_code == 0, result.output
    assert received == expected


def test_only_the_fields_asked_for_become_options() -> None:
    program = typer.Typer()

    @program.command()
    @options_from(Options, "given", only=("seed",))
    def command(given: dict[str, Any]) -> None:
        pass

    assert CliRunner().invoke(program, ["--seed", "3"]).exit_code == 0
    assert CliRunner().invoke(program, ["--rate", "0.5"]).exit_code == 2


def test_a_field_that_no_setting_declares_is_no_option() -> None:
    program = typer.Typer()

    @program.command()
    @options_from(Options, "given")
    def command(given: dict[str, Any]) -> None:
        pass

    assert CliRunner().invoke(program, ["--hidden", "3"]).exit_code == 2


def test_help_loads_no_numpy() -> None:
    """Declaring the options must not cost the second that importing arrays takes."""
    code = "import sys, polyformer.cli; print(*{'numpy', 'torch', 'pyarrow'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.stdout.strip(), result.stderr) == ("", "")
