"""The commands of the Containerfile, typed without a container."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.cli.test_cli import run

CONTAINERFILE = Path(__file__).parents[2] / "Containerfile"


def words_of(instruction: str) -> list[str]:
    """The words of an instruction that is written as a list."""
    lines = CONTAINERFILE.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    [line] = [line for line in lines if line.startswith(instruction)]
    words: list[str] = json.loads(line[len(instruction) :])
    return words


def test_the_entry_serves_with_a_token_alone(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("/served", str(places)) for word in words_of("ENTRYPOINT")]
    assert words[0].endswith("/bin/polyformer")
    monkeypatch.delenv("POLYFORMER_TOKEN", raising=False)
    assert run(*words[1:], "--check", "--port", "0") == 2
    assert "needs '--token'" in capsys.readouterr().err
    monkeypatch.setenv("POLYFORMER_TOKEN", "secret")
    here = [word.replace("0.0.0.0", "127.0.0.1") for word in words[1:]]
    assert run(*here, "--check", "--port", "0") == 0
    assert "60 nodes" in capsys.readouterr().out


def test_the_health_check_asks_a_server(client: httpx.Client) -> None:
    interpreter, option, code = words_of("HEALTHCHECK CMD")
    assert (interpreter, option) == ("/opt/polyformer/bin/python", "-c")
    exec(code.replace("8750", str(client.base_url.port)))
    with pytest.raises(OSError, match="refused"):
        exec(code.replace("8750", "1"))
