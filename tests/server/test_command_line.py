"""``polyformer serve`` as a process: refusals before it starts, an end when it is told, no update lost by a kill."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from tests.cli.test_cli import run
from tests.edits import adopt

pytestmark = pytest.mark.slow
NODE = {"features": {"age": 31, "city": "c1", "since": "2012-01-05"}}


def options(place: Path) -> list[str]:
    return [str(place / "run"), "--graph", str(place / "graph"), "--tokens", str(place / "tokens"), "--port", "0"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run("serve", *arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_refusals_are_one_sentence(places: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ordinary = options(places)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "another program uses it" in refused(capsys, *ordinary[:-1], port)
    assert "'--token'" in refused(capsys, *ordinary, "--host", "0.0.0.0")
    assert "without spaces" in refused(capsys, *ordinary, "--token", "two words")
    assert "0..65535" in refused(capsys, *ordinary[:-1], "70000")
    assert "no directory" in refused(capsys, str(tmp_path / "nothing"), "--port", "0")
    tables = [str(places / "run"), "--graph", str(places / "tables"), "--port", "0", "--writable"]
    assert "needs a graph directory" in refused(capsys, *tables)


def test_a_run_of_another_version(places: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "run"
    shutil.copytree(places / "run", place)
    config = json.loads((place / "config.json").read_text())
    config.pop("checksum", None)
    config["card"]["model"] = "polyformer-of-the-future"
    (place / "config.json").write_text(json.dumps(config))
    adopt(place)
    sentence = refused(capsys, str(place), "--graph", str(places / "graph"), "--port", "0")
    assert "polyformer-of-the-future" in sentence
