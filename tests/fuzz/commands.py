"""Verbs of the command line as readers: a folder of good input, one command on it, and how the command must end.

A command must end with 0, or with 1 or 2 and one sentence; a command that fails leaves no file behind. All commands
work in copies of the same world: tables, a graph of them, tokens, two runs, changes, new nodes.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import random
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import typer.main

from polyformer.cli import app, main
from polyformer.errors import PolyformerError

__all__ = ["COMMANDS", "OPTION_VERBS", "make_world", "read_options", "run_command", "write_options"]

_SMALL = "--set order=2 --set hidden_channels=8 --set heads=2 --set num_layers=1 --set epochs=2 --set batch_size=full"

COMMANDS: dict[str, tuple[str, str]] = {
    "import": ("import tables new-graph", "tables"),
    "train": (f"train graph --out new {_SMALL} --no-report", "graph"),
    "train tables": (f"train tables --out new {_SMALL} --no-report", "tables"),
    "train on tokens": (f"train graph --out new {_SMALL} --no-report --tokens tokens", "tokens"),
    "resume": ("train --resume --out unfinished --no-report", "unfinished"),
    "predict": ("predict run --out new.csv", "run graph"),
    "predict on tables": ("predict run tables --out new.csv", "tables"),
    "predict new nodes": (
        "predict run --new new-nodes/nodes.csv --edges new-nodes/edges.csv --out new.csv",
        "new-nodes",
    ),
    "filters": ("filters run --out new.parquet", "run graph"),
    "export": ("export run --out new.pt2", "run"),
    "report": ("report run --out new.html", "run graph"),
    "compare": ("compare run other --out new.html", "run other"),
    "tokens": ("tokens graph --order 2 --out new", "graph"),
    "update": ("update graph changes", "graph changes"),
    "update tokens": ("tokens changed --update changed-tokens", "changed changed-tokens"),
    "serve": ("serve run --graph graph --tokens tokens --writable --port 0 --check", "run graph tokens"),
    "verify graph": ("verify graph", "graph"),
    "verify tokens": ("verify tokens", "tokens"),
    "verify run": ("verify run", "run"),
}
"""A command, and the parts of the world that are damaged before it."""


def run_command(arguments: list[str], folder: Path) -> None:
    """Run a command in a folder.

    Raises:
        PolyformerError: it refused, as it should: code 1 or 2, one sentence, nothing left behind.
        AssertionError: it ended in any other way.
    """
    before = _names(folder)
    printed, code = io.StringIO(), 0
    with contextlib.chdir(folder), contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        try:
            main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
    text = printed.getvalue()
    assert code in (0, 1, 2), f"code {code}: {text[-300:]}"
    if not code:
        return
    sentences = [line for line in text.splitlines() if line.startswith("polyformer: ")]
    assert len(sentences) == 1, f"no sentence: {text[-300:]}"
    assert not re.search(r"Unexpected|Traceback", text), text[-400:]
    left = {name for name in _names(folder) - before if not name.endswith(("/lock", ".lock"))}
    assert not any(name.startswith("new") or re.search(r"\.[0-9a-f]{12}$", name) for name in left), f"left {left}"
    raise PolyformerError(sentences[0])


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@cache
def _world() -> Path:
    """The folder that all commands begin with, made once in a process."""
    place = Path(tempfile.mkdtemp(prefix="world-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _write_tables(place)
    for command in (
        "import tables graph",
        "import tables changed",
        f"train graph --out run {_SMALL} --no-report",
        f"train graph --out other {_SMALL} --seed 1 --no-report",
        "tokens graph --order 2 --out tokens",
        "tokens changed --order 2 --out changed-tokens",
        "update changed changes",
    ):
        run_command(shlex.split(command), place)
    shutil.copytree(place / "run", place / "unfinished")
    for name in ("result.json", "model.safetensors"):
        (place / "unfinished" / name).unlink()
    return place


def _write_tables(place: Path) -> None:
    people = range(30)
    for name in ("tables", "changes", "new-nodes"):
        (place / name).mkdir(exist_ok=True)
    edges = "".join(f"{i},{(i * 7 + 1) % 30},{1 + i % 4}.5\n" for i in people)
    (place / "tables" / "edges.csv").write_text(f"source,target,weight\n{edges}")
    nodes = "".join(f"p{i},{i},c{i % 3},{i % 2}\n" for i in people)
    (place / "tables" / "nodes.csv").write_text(f"id,age,city,label\n{nodes}")
    edges = re.sub(r"(?m)^(\d+),(\d+)", r"p\1,p\2", edges)
    (place / "tables" / "edges.csv").write_text(f"source,target,weight\n{edges}")
    (place / "changes" / "edges.csv").write_text("action,source,target\nadd,p3,p17\nremove,p0,p1\n")
    (place / "changes" / "nodes.csv").write_text("action,id,age,city,label\nadd,q1,5,c1,1\nremove,p9,,,\n")
    (place / "new-nodes" / "nodes.csv").write_text("id,age,city\n77,12,c1\n")
    (place / "new-nodes" / "edges.csv").write_text("source,target,weight\n77,p5,1\n")


def make_world(folder: Path, parts: str) -> None:
    """The parts of the world that a command is given damaged; the others are added by :func:`complete`."""
    for part in parts.split():
        shutil.copytree(_world() / part, folder / part)


def complete(folder: Path) -> None:
    """Add what is left of the world."""
    for part in _world().iterdir():
        if not (folder / part.name).exists() and not (folder / part.name).is_symlink():
            shutil.copytree(part, folder / part.name)


# ---- options ----

OPTION_VERBS = {
    "import": COMMANDS["import"][0],
    "train": COMMANDS["train"][0],
    "predict": COMMANDS["predict"][0],
    "filters": COMMANDS["filters"][0],
    "report": COMMANDS["report"][0],
    "export": COMMANDS["export"][0],
    "tokens": COMMANDS["tokens"][0],
    "update": COMMANDS["update"][0],
    "tune": "tune minefield:width=8,height=8 --model mlp --set epochs=1 --trials 1 --workers 1 --study new.journal",
    "models": "models",
    "datasets": "datasets",
    "verify": "verify graph",
}
_ODD_VALUES = (
    *(
        "",
        " ",
        "-1",
        "0",
        "1",
        "2",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "99999999999999999999",
        "9" * 5000,
        "x",
        "é😀",
    ),
    *(
        "\ud800",
        "x" * 5000,
        "../x",
        "/dev/null",
        "/dev/zero",
        "/",
        ".",
        "graph",
        "run",
        "tables/nodes.csv",
        "a=b",
        "order=0",
    ),
    *(
        "heads=3",
        "lr=nan",
        "lr=-1",
        "epochs=-1",
        "batch_size=0",
        "num_layers=1e10",
        "hidden_channels=1e12",
        "a=b=c",
        "=x",
    ),
    *(
        "monomial",
        "chebyshev:a=1",
        "jacobi:a=nan,b=1",
        "mlp",
        "minefield:width=0,height=3",
        "minefield:width=1e6",
        "cora",
    ),
    *(
        "cpu",
        "cuda",
        "cuda:99",
        "auto",
        "all",
        "labelled",
        "0,1,2",
        "1GB",
        "-1GB",
        "1e30GB",
        "10%",
        "http://x",
        "a\nb",
        "%s",
    ),
)
_UNTOUCHED = "0123456789" * 20
_LONG = (
    "--epochs",
    "--trials",
    "--workers",
    "--seconds",
    "--draws",
    "--help",
    "--cluster",
    "--address",
    "--num-workers",
)


def write_options(folder: Path) -> None:
    """A file whose damage decides on the options."""
    (folder / "seed").write_text(_UNTOUCHED)


def odd_command(verb: str, rng: random.Random) -> list[str]:
    """A good command with one to three options of odd values, without an argument, or with one more."""
    arguments = shlex.split(OPTION_VERBS[verb])
    command = typer.main.get_command(app).get_command(None, verb)  # type: ignore[attr-defined, arg-type]
    options = [name for entry in command.params for name in entry.opts if name.startswith("--") and name not in _LONG]
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.randrange(8)
        if kind == 0 and len(arguments) > 1:
            del arguments[rng.randrange(1, len(arguments))]
        elif kind == 1:
            arguments.insert(rng.randrange(1, len(arguments) + 1), rng.choice(_ODD_VALUES))
        elif kind == 2 and len(arguments) > 1:
            arguments[rng.randrange(1, len(arguments))] = rng.choice(_ODD_VALUES)
        else:
            arguments += [rng.choice([*options, "--unknown"]), rng.choice(_ODD_VALUES)]
    return arguments


def read_options(verb: str) -> Callable[[Path], None]:
    """A reader of the file of :func:`write_options`."""

    def read(folder: Path) -> None:
        path = folder / "seed"
        text = b""
        if path.is_file() and path.stat().st_size < 1 << 20:
            text = path.read_bytes()
        if text == _UNTOUCHED.encode():
            return
        complete(folder)
        run_command(odd_command(verb, random.Random(text)), folder)

    return read
