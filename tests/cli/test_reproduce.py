from __future__ import annotations

import pytest

from polyformer.experiments import EXPERIMENTS
from tests.cli.test_cli import run


def test_list_explains_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reproduce", "--list") == 0
    out = capsys.readouterr().out
    for name in EXPERIMENTS:
        assert f"{name}  {EXPERIMENTS[name].title}" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "'reproduce' must be told what."),
        (["table55"], "Unknown experiment 'table55'. Did you mean 'table5'?"),
        (["table5", "--models", "gnc"], "no model 'gnc'"),
        (["table5", "--budget", "long"], "A time must read like 2h, 45min or 1h30m. Got 'long'."),
        (["table5", "--set", "epochs"], "'--set' must read key=value."),
        (["table5", "--set", "ordr=3", "--show"], "Unknown setting 'ordr'."),
        (["table4", "--set", "basis=jacobi"], "Got basis=jacobi. Choose with --bases."),
        (["table5", "--runs", "0"], "Invalid value for '--runs'"),
    ],
)
def test_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reproduce", *arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
