"""Every verb of the command line once, on tiny graphs: what the lowest versions of all dependencies must stand."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from polyformer.cli import app
from tests.cli.test_cli import BOARD, run

SMALL = "--set order=2 --set hidden_channels=8 --set heads=2 --set num_layers=1 --set epochs=2"

# Typed one after the other in one folder: later commands use what earlier ones wrote.
COMMANDS = [
    "--version",
    "datasets",
    "models",
    "bases",
    "reproduce --list",
    "import tables graph",
    f"train graph --out own {SMALL} --no-report",
    f"train {BOARD} --out run {SMALL} --tensorboard",
    f"train {BOARD} --out convolution --model gcn --set epochs=2 --no-report",
    "predict run --out predictions.parquet",
    "predict own --out predictions.csv",
    "report run --out report.html",
    "compare run convolution --out comparison.html",
    "filters run --out filters.parquet",
    "export run --out model.onnx",
    "export own --out model.pt2",
    f"tokens {BOARD} --order 2 --out tokens",
    "verify run",
    "verify graph",
    "verify tokens",
    "tokens graph --order 2 --out graph-tokens",
    "update graph changes --check own",
    "tokens graph --update graph-tokens --tolerance 1e-3",
    "predict own --new new.csv --edges links.csv --out new-predictions.csv",
    "serve own --graph graph --tokens graph-tokens --writable --port 0 --check",
    f"tune {BOARD} --model mlp --set epochs=1 --trials 1 --workers 1 --study mlp.journal",
]
WRITTEN = [
    "graph/manifest.json",
    "own/result.json",
    "run/report.html",
    "run/tensorboard/events.*",
    "predictions.parquet",
    "predictions.csv",
    "report.html",
    "comparison.html",
    "filters.parquet",
    "model.onnx.json",
    "model.pt2.json",
    "tokens/manifest.json",
    "graph/journal.jsonl",
    "graph-tokens/changes.log",
    "new-predictions.csv",
    "mlp.csv",
]


@pytest.mark.slow
def test_every_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    people = range(30)
    Path("tables").mkdir()
    Path("tables/edges.csv").write_text("source,target\n" + "".join(f"{i},{(i * 7 + 1) % 30}\n" for i in people))
    Path("tables/nodes.csv").write_text("id,age,city,label\n" + "".join(f"{i},{i},c{i % 3},{i % 2}\n" for i in people))
    Path("changes").mkdir()
    Path("changes/edges.csv").write_text("action,source,target\nadd,3,17\nremove,0,1\n")
    Path("new.csv").write_text("id,age,city\n77,12,c1\n")
    Path("links.csv").write_text("source,target\n77,5\n")
    for command in COMMANDS:
        code = run(*shlex.split(command))
        assert code == 0, f"polyformer {command}: {capsys.readouterr().err}"
    missing = [pattern for pattern in WRITTEN if not list(tmp_path.glob(pattern))]
    assert missing == []


def test_no_verb_is_left_out() -> None:
    verbs = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert verbs <= {command.split()[0] for command in COMMANDS}
