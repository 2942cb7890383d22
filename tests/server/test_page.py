"""What the page on the server shows is typed here: its commands, its bodies and its example."""

from __future__ import annotations

import json
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from polyformer.server.limits import Limits
from tests.cli.test_cli import run
from tests.documentation import marked_blocks, page
from tests.server.served import serving

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving.py"
SMALL = "--set epochs=2 --set hidden_channels=8 --set heads=2 --no-report"


@pytest.mark.slow
def test_commands_bodies_and_example_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["ann", "bob", "cat", *(f"p{i}" for i in range(20))]
    rows = [f"{name},{20 + i},{'Rome' if i % 2 else 'Oslo'},{'yes' if i % 3 else 'no'}" for i, name in enumerate(names)]
    Path("tables").mkdir()
    Path("tables/nodes.csv").write_text("id,age,city,label\n" + "\n".join(rows) + "\n")
    links = [f"{one},{other}" for one, other in zip(names, [*names[1:], names[0]], strict=True)]
    Path("tables/edges.csv").write_text("source,target\n" + "\n".join(links) + "\n")
    commands = next(block for language, block in marked_blocks("serving.md") if language == "sh")
    for line in commands.splitlines():
        verb, *arguments = shlex.split(line)[1:]
        more = {"train": shlex.split(SMALL), "serve": ["--check", "--port", "0"]}.get(verb, [])
        assert run(verb, *arguments, *more) == 0, line
    Path("runs/first").rename("run")
    ids, new, change = (json.loads(block) for language, block in marked_blocks("serving.md") if language == "json")
    typed = next(block for language, block in marked_blocks("serving.md") if language == "bash")
    with serving(tmp_path, writable=True) as client:
        for line in typed.splitlines() if shutil.which("curl") else ():
            words = shlex.split(line.replace("http://127.0.0.1:8750", str(client.base_url).rstrip("/")))
            printed = subprocess.run([*words, "--silent", "--noproxy", "*"], capture_output=True, check=True).stdout
            assert "yes" in json.loads(printed)["classes"], line
        assert len(client.post("/predict", json=ids).json()["predictions"]) == 2
        assert client.post("/predict", json=new).json()["predictions"][0]["id"] == "zoe"
        assert client.post("/updates", json=change).json()["version"] == 1
        features = json.dumps({"age": 30, "city": "Oslo"})
        address = str(client.base_url).rstrip("/")
        words = ["serving.py", address, "ann", "bob", "--new", "yan", "--features", features, "--apply"]
        monkeypatch.setattr(sys, "argv", words)
        capsys.readouterr()
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        assert "applied: 2" in capsys.readouterr().out


def test_the_page_names_the_limits() -> None:
    limits, text = Limits(), page("serving.md")
    assert f"| {limits.body_bytes >> 20} MiB |" in text
    assert f"| {limits.ids:,}, {limits.new_nodes:,}, {limits.edges:,} |" in text
    assert f"| {limits.seconds:g}; {limits.update_seconds:g} |" in text
    assert f"an idle connection | {limits.sending_seconds:g} |" in text
    assert f"| {limits.waiting:,} | 503 |" in text
    assert f"| open connections | {limits.connections} |" in text
