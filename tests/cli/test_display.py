"""What is shown while work goes on: a share that grows to the end, and no estimate before there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyformer.cli import display as displays
from polyformer.cli.display import Display
from tests.cli.test_cli import BOARD, FAST, run


def test_no_time_is_estimated_before_something_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(displays.time, "monotonic", lambda: float(next(now)))
    with Display().reporter(work=100.0, unit="MB") as reporter:
        for done in (0.25, 0.25, 0.5):
            reporter.share("tokens", done)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["tokens: 25 %", "tokens: 25 %"]
    assert lines[2].startswith("tokens: 50 %, ")
    assert lines[2].endswith(" min left")


def test_compare_is_not_done_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    runs = [tmp_path / name for name in ("a", "b")]
    for path in runs:
        assert run("train", BOARD, "--out", path, *FAST) == 0
    capsys.readouterr()
    monkeypatch.setattr(displays, "SECONDS_PER_LINE", -1.0)
    assert run("compare", *runs, "--out", tmp_path / "c.html") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("comparing: ")]
    shares = [int(line.split()[1]) for line in lines]
    assert shares == sorted(shares)
    assert 50 < shares[-1] < 100
