"""``polyformer filters`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.test_cli import BOARD, FAST, run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    assert run("train", BOARD, "--out", path, *FAST) == 0
    return path


def test_every_node_is_a_row(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "filters.parquet"
    assert run("filters", trained, "--out", out, "--clusters", 3, "--points", 5, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 300, "out": str(out)}
    table = pq.read_table(out).to_pydict()
    assert set(table["cluster"]) == {0, 1, 2}
    assert [len(table[name][0]) for name in ("layer0_head3", "response_head0")] == [4, 5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clusters", "0"], "'clusters' must lie in 1..300"),
        (["--points", "-1"], "'points' must be 0 or more"),
        (["--channel", "1"], "all channels share the basis 'monomial'"),
    ],
)
def test_bad_input_is_one_sentence(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run("filters", trained, "--out", tmp_path / "f.parquet", *options) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_options_are_refused_before_the_work(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        pytest.fail("the work was begun")

    monkeypatch.setattr("polyformer.filters.table.node_blocks", work)
    for options in (["--clusters", "301"], ["--channel", "1"]):
        assert run("filters", trained, "--out", tmp_path / "f.parquet", *options) == 2
    assert "Leave it out." in capsys.readouterr().err


def test_points_of_one_filter_for_all(tmp_path: Path) -> None:
    assert run("train", BOARD, "--model", "gprgnn", "--set=epochs=1", "--no-report", "--out", tmp_path / "run") == 0
    for points in (0, 1, 7):
        assert run("filters", tmp_path / "run", "--points", points, "--out", tmp_path / "f.parquet") == 0
        table = pq.read_table(tmp_path / "f.parquet").to_pydict()
        assert [len(row) for row in table.get("response", [[]])] == [points]
