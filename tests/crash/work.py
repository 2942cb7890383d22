"""The works that are disturbed: what each makes, how it is seen to be whole, and how it is taken up again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import polyformer as pf
from polyformer.importing import import_graph
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.tokens import write_tokens
from polyformer.verification import verify_directory
from tests.cli.test_cli import run

__all__ = ["WORKS", "Work"]

SETTINGS = {"order": 2, "hidden_channels": 8, "heads": 2, "num_layers": 1, "epochs": 3, "patience": 3}


@dataclass(frozen=True)
class Work:
    """Attributes:
    prepare: writes what the work needs into an empty folder.
    do: does the work in that folder; called again after a disturbance, it takes the work up.
    whole: what was made, as a text that two undisturbed works share; "" if nothing was; raises if it is damaged.
    """

    prepare: Callable[[Path], None]
    do: Callable[[Path], None]
    whole: Callable[[Path], str]


def _task() -> Task:
    random = np.random.default_rng(0)
    graph = pf.Graph(random.integers(0, 40, (2, 90)), random.normal(size=(40, 3)), 40)
    splits = [Split(np.arange(16), np.arange(16, 28), np.arange(28, 40))]
    return Task("small", graph, np.arange(40) % 3, splits, ids=np.arange(40) + 100)


def _tables(folder: Path) -> None:
    random = np.random.default_rng(0)
    edges = "\n".join(f"{a},{b}" for a, b in random.integers(0, 40, (120, 2)))
    nodes = "\n".join(f"{i},{i % 3},{i / 7:.3f}" for i in range(40))
    (folder / "in").mkdir()
    (folder / "in" / "edges.csv").write_text(f"source,target\n{edges}\n")
    (folder / "in" / "nodes.csv").write_text(f"id,label,x\n{nodes}\n")


def _directory(folder: Path) -> str:
    out = folder / "out"
    if not out.exists() or not any(out.iterdir()):
        return ""
    verify_directory(out)
    return str({path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.name != "lock"})


def _import(folder: Path) -> None:
    if not _directory(folder):
        import_graph(folder / "in", folder / "out")


def _save(folder: Path) -> None:
    if not _directory(folder):
        _task().save(folder / "out")


def _tokens(basis: str, engine: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        if not _directory(folder):
            write_tokens(_task().graph, folder / "out", basis, 2, engine=engine)

    return do


def _train(folder: Path) -> None:
    out, request = folder / "out", RunRequest(data=str(folder / "graph"), settings=dict(SETTINGS), memory=1 << 30)
    execute_run(request, out, resume=(out / "config.json").exists())


def _run(folder: Path) -> str:
    out = folder / "out"
    if not (out / "config.json").exists():
        return ""
    verify_directory(out)
    if not (out / "result.json").exists():
        return ""
    result = json.loads((out / "result.json").read_text())
    scores = [result[name] for name in ("val", "test", "epochs", "best_epoch")]
    return f"{scores} {(out / 'model.safetensors').read_bytes()!r}"


def _trained(folder: Path) -> None:
    _task().save(folder / "graph")
    _train(folder)
    (folder / "out").rename(folder / "run")
    (folder / "p.csv").write_text("old")
    (folder / "r.html").write_text("old")


def _predict(folder: Path) -> None:
    if run("predict", folder / "run", "--out", folder / "p.csv"):
        raise SystemExit(10)


def _report(folder: Path) -> None:
    if run("report", folder / "run", "--out", folder / "r.html"):
        raise SystemExit(10)


def _file(name: str, end: str) -> Callable[[Path], str]:
    def whole(folder: Path) -> str:
        text = (folder / name).read_text()
        if text == "old":
            return ""
        assert text.rstrip().endswith(end) or not end, "half a file"
        return text if name.endswith(".csv") else "a report"

    return whole


WORKS: dict[str, Work] = {
    "import": Work(_tables, _import, _directory),
    "save": Work(lambda folder: None, _save, _directory),
    "tokens in memory": Work(lambda folder: None, _tokens("chebyshev", "memory"), _directory),
    "tokens on disk": Work(lambda folder: None, _tokens("chebyshev", "disk"), _directory),
    "optimal tokens": Work(lambda folder: None, _tokens("optimal", "disk"), _directory),
    "train": Work(lambda folder: _task().save(folder / "graph"), _train, _run),
    "predict": Work(_trained, _predict, _file("p.csv", "")),
    "report": Work(_trained, _report, _file("r.html", "</html>")),
}


def fresh(source: Path, target: Path) -> None:
    """The folder as the work begins."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
