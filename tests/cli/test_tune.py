"""Searching as a user types it: the study goes on, the preset trains, the validation score decides."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from polyformer.reporter import Reporter
from polyformer.tuning import study as studies
from tests.cli.test_cli import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_workers")]

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


def test_ctrl_c_says_what_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: object, reporter: Reporter, **options: object) -> studies.Best:
        signal.raise_signal(signal.SIGINT)
        return studies.Best(0.5, {}, 1, reporter.should_stop())

    monkeypatch.setattr(studies, "tune", search)
    assert run("tune", BOARD, "--study", tmp_path / "s.journal", *SMALL) == 130
    captured = capsys.readouterr()
    assert "best of 1 trials: roc_auc 0.5000 on 45 validation nodes\n" in captured.out
    assert "press Ctrl-C again to stop at once (what is under way is tried again next time)." in captured.out
    assert captured.err == "polyformer: The search was stopped; the same command goes on from here.\n"
    assert "warning" not in captured.out
    assert run("tune", "minefield:width=10,height=10", "--study", tmp_path / "small.journal", *SMALL) == 130
    assert "warning: so few validation nodes hardly tell good settings from lucky ones" in capsys.readouterr().out


def test_nothing_but_failures_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--study", tmp_path / "s.journal", *SMALL, "--set", "lr=1e30", "--set", "num_layers=3"]
    for _ in range(2):  # the second time nothing is left to be tried
        assert run("tune", BOARD, "--trials", 2, *options) == 2
        message = capsys.readouterr().err
        assert "All 2 trials of the study" in message
        assert "Lower lr=1e+30" in message
        assert "Traceback" not in message


def test_files_of_others_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("Mine.\n")
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,2\n")
    for options, message in [
        (["--study", notes], f"'{notes}' is not the file of a study. Take another --study."),
        (["--study", tmp_path / "s.csv"], "cannot be one file"),
        (["--out", tmp_path / "best.txt"], "A preset file must end in .csv. Got"),
        (["--out", table], f"'{table}' cannot be read as a preset"),
        (["--study", tmp_path], "cannot be read: it is a directory, not a file."),
    ]:
        assert run("tune", BOARD, "--trials", 1, *SMALL, *options) == 2
        assert message in capsys.readouterr().err
    assert notes.read_text() == "Mine.\n"
    assert table.read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "Unknown data set 'nowhere'."),
        ([BOARD, "--model", "gnc"], "Unknown model 'gnc'. Did you mean 'gcn'?"),
        ([BOARD, "--budget", "soon"], "A time must read like 2h"),
        ([BOARD, "--split", "8", "--splits", "3"], "'splits' must be at most 2: "),
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
