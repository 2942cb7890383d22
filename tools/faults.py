"""Plant small faults in the source one at a time, and see whether a test notices each of them.

    make coverage                                      # writes .coverage, which tells the tests that run each line
    .venv/bin/python tools/faults.py --count 120 --out faults.json

Faults are drawn with a seed over the lines of ``src/`` that compute something: a comparison, a sign, a constant or a
condition changes, two arguments swap places, a call is left out. ``tools/faults.toml`` adds faults chosen by hand. A
fault is planted in a copy of the tree, where the tests that run its line are run until the first one fails.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Fault:
    """A piece of one source file replaced by another.

    Attributes:
        file: path below the root of the tree.
        line: where the piece begins, counted from 1.
        old, new: the piece and what stands in its place.
    """

    file: str
    line: int
    kind: str
    old: str
    new: str
    column: int = -1

    def plant(self, text: str) -> str:
        """The text of the file with the fault in it."""
        if self.column < 0:
            assert text.count(self.old) == 1, f"{self.file} has {text.count(self.old)} places like {self.old!r}"
            return text.replace(self.old, self.new)
        lines = text.splitlines(keepends=True)
        start = len("".join(lines[: self.line - 1]).encode()) + self.column
        content = text.encode()
        assert content[start:].startswith(self.old.encode())
        return (content[:start] + self.new.encode() + content[start + len(self.old.encode()) :]).decode()


def candidates(file: str, text: str) -> Iterator[Fault]:
    """Every fault that could be planted in a file."""
    tree = ast.parse(text)
    skipped = {id(part) for node in ast.walk(tree) for part in _no_computation(node)}

    def visit(node: ast.AST) -> Iterator[Fault]:
        if id(node) in skipped:
            return
        for kind, new in _changes(node):
            old = ast.get_source_segment(text, node)
            assert old is not None
            assert isinstance(node, ast.expr | ast.stmt)
            if "\n" not in old and old != new:
                yield Fault(file, node.lineno, kind, old, new, node.col_offset)
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    yield from visit(tree)


def _no_computation(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node that say nothing about what is computed: annotations, messages, texts."""
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation
    if isinstance(node, ast.FunctionDef) and node.returns is not None:
        yield node.returns
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
        yield node
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        yield node


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The kinds of fault that fit an expression or a statement, with what would stand in its place."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in _OPERATORS:
            yield "comparison", ast.unparse(ast.Compare(left, [_OPERATORS[type(operator)]()], [right]))  # type: ignore[list-item]
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS and not _is_union(node):
            yield "sign", f"({ast.unparse(ast.BinOp(left, _OPERATORS[type(operator)](), right))})"  # type: ignore[arg-type]
        case ast.BoolOp(operator, values):
            yield "condition", f"({ast.unparse(ast.BoolOp(_OPERATORS[type(operator)](), values))})"  # type: ignore[arg-type]
        case ast.UnaryOp(ast.Not(), operand):
            yield "condition", f"({ast.unparse(operand)})"
        case ast.Constant(bool() as value):
            yield "constant", str(not value)
        case ast.Constant(int() as value):
            yield "constant", str(value + 1)
        case ast.Constant(float() as value):
            yield "constant", repr(2 * value + 1e-3)
        case ast.Call(function, [first, second, *rest], keywords) if not isinstance(first, ast.Starred):
            if ast.unparse(first) != ast.unparse(second) and not isinstance(second, ast.Starred):
                yield "arguments", ast.unparse(ast.Call(function, [second, first, *rest], keywords))
        case ast.Expr(ast.Call()):
            yield "call", "pass"


def _is_union(node: ast.BinOp) -> bool:
    return isinstance(node.op, ast.BitOr)


def draw(root: Path, count: int, seed: int) -> list[Fault]:
    """So many faults, each on another line, all lines that have a candidate being equally likely."""
    by_line: dict[tuple[str, int], list[Fault]] = {}
    for path in sorted((root / "src").rglob("*.py")):
        file = str(path.relative_to(root))
        for fault in candidates(file, path.read_text("utf-8")):
            by_line.setdefault((file, fault.line), []).append(fault)
    dice = random.Random(seed)
    return [dice.choice(by_line[line]) for line in dice.sample(sorted(by_line), count)]


def by_hand(root: Path, path: Path) -> list[Fault]:
    """The faults of a TOML file, each with ``file``, ``old`` and ``new``; ``old`` stands once in the file."""
    faults = []
    for entry in tomllib.loads(path.read_text("utf-8"))["fault"]:
        text = (root / entry["file"]).read_text("utf-8")
        assert text.count(entry["old"]) == 1, f"{entry['file']} has {text.count(entry['old'])} of {entry['old']!r}"
        line = text[: text.index(entry["old"])].count("\n") + 1
        faults.append(Fault(entry["file"], line, entry["kind"], entry["old"], entry["new"]))
    return faults


_CONTEXT = re.compile(r"(@\w+)?\|\w+$")
"""What the name of a context has after the test: the group that xdist kept it in, and the phase."""

_NOT_COPIED = (".git", ".venv*", "results", "runs", "build", "images", "*.pyc")


class Coverage:
    """Which tests run which lines, from a ``.coverage`` file with a context for every test."""

    def __init__(self, path: Path) -> None:
        from coverage import CoverageData

        data = CoverageData(str(path))
        data.read()
        self.lines: dict[str, dict[int, list[str]]] = {}
        self.extent: Counter[str] = Counter()
        for name in data.measured_files():
            contexts = data.contexts_by_lineno(name)
            self.lines[name.rpartition("/src/")[2]] = contexts
            for tests in contexts.values():
                self.extent.update(tests)

    def tests(self, fault: Fault) -> list[str]:
        """The tests that run the line of a fault, those that run the fewest lines first.

        A line that runs when its module is imported, such as a default, runs in no test: there it is the tests of the
        whole module.
        """
        contexts = self.lines.get(fault.file.removeprefix("src/"), {})
        running = {test for test in contexts.get(fault.line, []) if test}
        if not running:
            running = {test for tests in contexts.values() for test in tests if test}
        ordered = sorted(running, key=lambda test: (self.extent[test], test))
        return list(dict.fromkeys(_CONTEXT.sub("", test) for test in ordered))


_NEAREST = 40
"""So many tests, those that run the fewest lines, are tried first; the others only if none of these fails."""

_OUTCOMES = {0: "missed", 1: "caught", 2: "caught"}
"""By pytest's exit code: all passed, some failed, some could not even be imported."""


def judge(fault: Fault | None, root: Path, tests: list[str], seconds: float) -> tuple[str, float]:
    """Run tests on a copy of the tree with the fault in it.

    Args:
        fault: None plants nothing: then no test may fail.

    Returns:
        ``caught``, ``missed`` or, where the time ended first, ``unfinished``; and how long it took.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        if fault is not None:
            path = copy / fault.file
            path.write_text(fault.plant(path.read_text("utf-8")), "utf-8")
        outcome = "missed"
        for part in (tests[:_NEAREST], tests[_NEAREST:]):
            if part and outcome == "missed":
                outcome = _outcome(copy, part, started + seconds)
        return outcome, time.monotonic() - started


def _outcome(tree: Path, tests: list[str], deadline: float) -> str:
    (tree / "selected").write_text("\n".join(tests))
    child = os.fork()  # the libraries are imported already; those of the package come from the copy
    if child == 0:
        os._exit(_run_tests(tree))
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                return "caught"  # the process crashed
            assert code in _OUTCOMES, f"pytest ended with {code}: {(tree / 'log').read_text()[-2000:]}"
            return _OUTCOMES[code]
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "unfinished"


def _run_tests(tree: Path) -> int:
    os.setsid()
    os.chdir(tree)
    handle = os.open(tree / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ["PYTHONPATH"] = str(tree / "src")
    sys.path[:0] = [str(tree / "src"), str(tree)]
    import pytest

    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", f"@{tree / 'selected'}"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the tree to plant faults in")
    parser.add_argument("--coverage", type=Path, default=Path(".coverage"), help="made with a context for every test")
    parser.add_argument("--count", type=int, default=120, help="how many faults to draw")
    parser.add_argument("--seed", type=int, default=0, help="seed for drawing them")
    parser.add_argument("--by-hand", type=Path, default=Path(__file__).with_name("faults.toml"))
    parser.add_argument("--only", type=Path, help="a file of an earlier call: plant again what it missed")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th fault from the i-th on, for several processes")
    parser.add_argument("--seconds", type=float, default=150.0, help="time limit for each fault")
    parser.add_argument("--out", type=Path, default=Path("faults.json"))
    options = parser.parse_args()
    root = options.root.resolve()
    if options.only is None:
        faults = [*by_hand(root, options.by_hand), *draw(root, options.count, options.seed)]
    else:
        earlier = json.loads(options.only.read_text())
        faults = [Fault(**entry["fault"]) for entry in earlier if entry["outcome"] != "caught"]
    begin, step = map(int, options.part.split("/"))
    faults = faults[begin::step]
    coverage = Coverage(options.coverage)
    import numpy, pyarrow, pytest, scipy.sparse, sklearn.metrics, torch  # noqa: E401, F401, I001  # for the forks

    verdicts = []
    outcome, _ = judge(None, root, coverage.tests(faults[0])[:_NEAREST], 600.0)
    assert outcome == "missed", "tests fail where nothing was planted"
    for number, fault in enumerate(faults, 1):
        tests = coverage.tests(fault)
        outcome, seconds = judge(fault, root, tests, options.seconds) if tests else ("unrun", 0.0)
        verdicts.append({"fault": asdict(fault), "outcome": outcome, "tests": len(tests), "seconds": round(seconds, 1)})
        options.out.write_text(json.dumps(verdicts, indent=1, ensure_ascii=False))
        change = " ".join(f"{fault.old[:60]} -> {fault.new[:60]}".split())
        print(f"[{number}/{len(faults)}] {outcome:7} {seconds:5.1f} s  {fault.file}:{fault.line}  {change}", flush=True)
    counts = Counter(entry["outcome"] for entry in verdicts)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
