from __future__ import annotations

import csv
from pathlib import Path

import pytest

from polyformer.experiments import EXPERIMENTS
from tests.cli.test_cli import run

PLAN = """
note = "made for a test"
datasets = ["minefield"]
runs = 1
splits = 10
[models.mlp]
"""


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
        (
            ["table5", "--datasets", "", "--show"],
            "'--datasets' must name one at least. Got ''. Leave it out to take all.",
        ),
        (["table5", "--models", " , ", "--show"], "'--models' must name one at least. Got ' , '."),
        (["table5", "--models", "gcn", "--bases", "chebyshev", "--show"], "None of the models asked for has a basis."),
        (["table5", "--budget", "long"], "A time must read like 2h, 45min or 1h30m. Got 'long'."),
        (["table5", "--set", "epochs"], "'--set' must read key=value."),
        (["table5", "--set", "ordr=3", "--show"], "Unknown setting 'ordr'."),
        (["table4", "--set", "basis=jacobi"], "Got basis=jacobi. Choose with --bases."),
        (["--page", "p.md", "--datasets", "cora"], "'--page' writes whole tables. Got --datasets too."),
        (["table5", "--page", "p.md", "--runs", "1"], "Got --runs too. Print a part of them with --show."),
        (["table5", "--page", "p.md", "--set", "lr=0.1"], "Got --set too."),
        (["table5", "--runs", "0"], "Invalid value for '--runs'"),
    ],
)
def test_errors(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("reproduce", *arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [["--show"], ["--page", "page.md"]])
def test_plans_of_the_same_name_are_refused(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in "ab":
        Path(folder).mkdir()
        (Path(folder) / "mine.toml").write_text(PLAN)
    assert run("reproduce", "a/mine.toml", "b/mine.toml", *option) == 2
    assert "Got 'a/mine.toml' and 'b/mine.toml'. Rename one of the files." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("[models.gnc]", "Unknown model 'gnc'. Did you mean 'gcn'?"),
        ("[models.polyattn]\n[bases.chebishev]", "Unknown basis 'chebishev'. Did you mean 'chebyshev'?"),
        ("[models.polyattn]\nbasis = 'foo'", "Unknown basis 'foo'. There are: "),
        ("[models.polyattn]\n[bases.'jacobi:c=1']", "The basis 'jacobi' has no option 'c'."),
        ("[models.mlp]\nordr = 3", "Unknown setting 'ordr'."),
        ("[models.mlp]\n[sources]\nminefield = 'minefield:seed={runs}'", "Got 'minefield:seed={runs}'."),
    ],
)
def test_what_a_plan_names_is_looked_up_before_anything_runs(
    entry: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text(PLAN.replace("[models.mlp]", entry))
    assert run("reproduce", tmp_path / "mine.toml", "--results", tmp_path / "results") == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_tables_are_one_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("reproduce", "table4", "table7-fast", "--show", "--csv", "--results", tmp_path) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(rows[0])[:2] == ["table", "model"]
    assert {row["table"] for row in rows} == {"table4", "table7-fast"}
    assert not [row for row in rows if row["model"] == "model"]
