"""A new process that predicts with a small run: its processor time beyond importing torch, and what it imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import polyformer as pf

pytestmark = pytest.mark.slow

UNUSED = ("torch_geometric", "sklearn", "plotly", "ray", "optuna", "starlette")

TAIL = """
import json, resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
names = {name.partition(".")[0] for name in sys.modules}
print(json.dumps([used.ru_utime + used.ru_stime, sorted(names)]))
"""


def spent(code: str) -> tuple[float, set[str]]:
    """Processor seconds of a new interpreter that runs the code, the least of three, and the packages it imported."""
    outcomes = []
    for _ in range(3):
        command = [sys.executable, "-c", code + TAIL]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        outcomes.append(json.loads(said.splitlines()[-1]))
    return min(seconds for seconds, _ in outcomes), set(outcomes[0][1])


def test_predicting_starts_soon(tmp_path: Path) -> None:
    pf.train("minefield:width=20,height=10", out=tmp_path / "run", epochs=1, hidden_channels=8, order=2)
    verb = ["predict", str(tmp_path / "run"), "--out", str(tmp_path / "predictions.csv")]
    code = f"from polyformer.cli import main\ntry: main({verb})\nexcept SystemExit as end: assert not end.code"
    bare, _ = spent("import torch\n")
    seconds, imported = spent(code)
    assert seconds - bare < 3
    assert not imported & set(UNUSED)
    assert (tmp_path / "predictions.csv").exists()
