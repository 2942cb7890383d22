"""The works that are disturbed: what each makes, how it is seen to be whole, and how it is taken up again.

Every work but one is a command as a user types it, so that a failure must end in a sentence.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import polyformer as pf
from polyformer.cli import main
from polyformer.graph import Graph
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.tokens import open_tokens
from polyformer.verification import verify_directory

__all__ = ["WORKS", "Refused", "Work", "fresh", "train_small"]

_SIZES = {"order": 2, "hidden_channels": 8, "heads": 2, "num_layers": 1, "epochs": 3, "patience": 3}
SETTINGS = [f"--set={name}={value}" for name, value in _SIZES.items()]


class Refused(Exception):
    """A command that ended in a sentence."""


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


def command(*arguments: object) -> None:
    """Run a command; a failure must be a sentence."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
    if code:
        assert "polyformer: " in printed.getvalue(), f"no sentence: {printed.getvalue()}"
        assert "Unexpected" not in printed.getvalue(), printed.getvalue()
        raise Refused(printed.getvalue())


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
    return str({path.name: path.read_bytes() for path in sorted(out.iterdir())})


def _import(folder: Path) -> None:
    if not _directory(folder):
        command("import", folder / "in", folder / "out", "--json")


def _save(folder: Path) -> None:
    if not _directory(folder):
        _task().save(folder / "out")


def _save_graph(folder: Path) -> None:
    _task().save(folder / "graph")


def _tokens(basis: str, engine: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        if not _directory(folder):
            place = ("--out", folder / "out", "--basis", basis, "--order", 2, "--engine", engine)
            command("tokens", folder / "graph", *place)

    return do


def _train(folder: Path) -> None:
    out = folder / "out"
    if (out / "config.json").exists():
        command("train", "--resume", "--out", out, "--no-report")
    else:
        command("train", folder / "graph", "--out", out, "--no-report", *SETTINGS)


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


def train_small(folder: Path) -> None:
    """A graph directory ``graph`` and a run ``run`` on it."""
    _save_graph(folder)
    _train(folder)
    (folder / "out").rename(folder / "run")


def _trained(folder: Path) -> None:
    train_small(folder)
    (folder / "p.csv").write_text("old")
    (folder / "r.html").write_text("old")


def _predict(folder: Path) -> None:
    command("predict", folder / "run", "--out", folder / "p.csv")


def _report(folder: Path) -> None:
    command("report", folder / "run", "--out", folder / "r.html")


def _predictions(folder: Path) -> str:
    """Six digits of each number: where memory is short, libraries multiply in another way and round otherwise."""
    text = (folder / "p.csv").read_text()
    if text == "old":
        return ""
    header, *rows = [line.split(",") for line in text.splitlines()]
    assert len(rows) == 40, "half a table"
    return str([header, *([round(float(cell), 6) for cell in row] for row in rows)])


def _whole_report(folder: Path) -> str:
    text = (folder / "r.html").read_text()
    if text == "old":
        return ""
    assert text.rstrip().endswith("</html>"), "half a file"
    return "a report"


def _changes(folder: Path) -> None:
    """A graph with one change and tokens that know it, and tables of a second change."""
    _save_graph(folder)
    command("tokens", folder / "graph", "--out", folder / "tokens", "--order", 2)
    for number in (1, 2):
        place = folder / f"changes{number}"
        place.mkdir()
        (place / "nodes.csv").write_text(f"action,id\nremove,{100 + number}\n")
        (place / "edges.csv").write_text(f"action,source,target\nadd,{110 + number},{120 + number}\n")
    command("update", folder / "graph", folder / "changes1")
    command("tokens", folder / "graph", "--update", folder / "tokens")


def _update(folder: Path) -> None:
    if Graph.load(folder / "graph").version < 2:
        command("update", folder / "graph", folder / "changes2")


def _updated(folder: Path) -> str:
    verify_directory(folder / "graph")
    graph = Graph.load(folder / "graph", verify=True)
    _ = graph.history
    return "" if graph.version < 2 else graph.fingerprint


def _changed(folder: Path) -> None:
    _changes(folder)
    _update(folder)


def _update_tokens(folder: Path) -> None:
    command("tokens", folder / "graph", "--update", folder / "tokens")


def _updated_tokens(folder: Path) -> str:
    verify_directory(folder / "tokens")
    stored, graph = open_tokens(folder / "tokens"), Graph.load(folder / "graph")
    if stored.manifest["graph"].partition("+")[0] != graph.fingerprint:  # behind the sign stands the scaling
        return ""
    return str(stored[:].numpy().round(5).tolist())


WORKS: dict[str, Work] = {
    "import": Work(_tables, _import, _directory),
    "save": Work(lambda folder: None, _save, _directory),
    "tokens in memory": Work(_save_graph, _tokens("chebyshev", "memory"), _directory),
    "tokens on disk": Work(_save_graph, _tokens("chebyshev", "disk"), _directory),
    "optimal tokens": Work(_save_graph, _tokens("optimal", "disk"), _directory),
    "train": Work(_save_graph, _train, _run),
    "update": Work(_changes, _update, _updated),
    "update of tokens": Work(_changed, _update_tokens, _updated_tokens),
    "predict": Work(_trained, _predict, _predictions),
    "report": Work(_trained, _report, _whole_report),
}


def fresh(source: Path, target: Path) -> None:
    """The folder as the work begins."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
