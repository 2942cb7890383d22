"""Searching as a user types it: the study goes on, the preset trains, the validation score decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_cli import run

BOARD = "minefield:width=15,height=12"
SMALL = ["--model", "mlp", "--set", "epochs=3", "--set", "hidden_channels=8", "--workers", "1"]


def test_a_study_goes_on_and_its_preset_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, preset = tmp_path / "mlp.journal", tmp_path / "mlp.csv"
    assert run("tune", BOARD, "--study", study, "--trials", 2, *SMALL) == 0
    out = capsys.readouterr().out
    assert "[2/2] trial 1: " in out
    assert f"--preset {preset}" in out
    assert run("tune", BOARD, "--study", study, "--trials", 3, "--json", *SMALL) == 0
    captured = capsys.readouterr()
    best = json.loads(captured.out)
    assert (best["trials"], best["stopped"], best["settings"]["hidden_channels"]) == (3, False, 8)
    assert "[3/3] trial 2: " in captured.err
    assert "trial 1:" not in captured.err
    assert run("train", BOARD, "--model", "mlp", "--preset", preset, "--out", tmp_path / "run") == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert best["settings"].items() <= config["settings"].items()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["val"] == pytest.approx(best["score"])

    assert run("tune", BOARD, "--study", study, "--trials", 3, *SMALL, "--set", "num_layers=2") == 2
    assert "was started with settings=" in capsys.readouterr().err
    assert run("tune", BOARD, "--study", study, "--trials", 3, *SMALL) == 0


def test_stopped_before_anything_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--study", tmp_path / "s.journal", "--budget", "0s", *SMALL, "--set", "epochs=100000"]
    assert run("tune", BOARD, *options, "--set", "patience=100000") == 1
    assert "has come to its end yet. Let it run longer." in capsys.readouterr().err
    assert not (tmp_path / "s.csv").exists()
    states = [json.loads(line) for line in (tmp_path / "s.journal").read_text().splitlines()]
    assert sum(line.get("user_attr", {}) != {} for line in states) >= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "Unknown data set 'nowhere'."),
        ([BOARD, "--model", "gnc"], "Unknown model 'gnc'. Did you mean 'gcn'?"),
        ([BOARD, "--budget", "soon"], "A time must read like 2h"),
        ([BOARD, "--seed", "-1"], "'seed' must be a whole number, 0 or more. Got -1."),
        ([BOARD, "--set", "ordr=3"], "Unknown setting 'ordr'."),
    ],
)
def test_errors(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("tune", *arguments) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
