"""What an earlier version wrote is read by this one, with the same numbers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import polyformer as pf
from polyformer.tasks import Task
from tests.cli.test_cli import run

HERE = Path(__file__).parent / "old_versions"


@pytest.fixture(params=sorted(place.name for place in HERE.iterdir() if place.name.startswith("version_")))
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in; the run names its graph by the relative path 'graph'."""
    place = tmp_path / "old"
    shutil.copytree(HERE / request.param, place)
    monkeypatch.chdir(place)
    return place


def test_graphs_and_tokens_are_read(old: Path) -> None:
    task = Task.load(old / "graph")
    assert (task.graph.num_nodes, task.class_names, task.ids[3]) == (40, ("a", "b", "c"), "n3")
    assert task.graph.fingerprint == pf.Graph.load(old / "graph", verify=True).fingerprint
    tokens = pf.compute_tokens(task.graph, order=2)
    np.testing.assert_allclose(pf.open_tokens(old / "tokens")[:], tokens[[5, 3, 9]], atol=1e-6)
    assert pf.open_tokens(old / "tokens-optimal").recurrence is not None


def test_models_predict_as_they_did(old: Path) -> None:
    graph = pf.Graph.load(old / "graph")
    probabilities = pf.PolyFormerClassifier.load(old / "classifier").predict_proba(graph)
    np.testing.assert_allclose(probabilities, np.loadtxt(old / "probabilities.csv", delimiter=","), atol=1e-5)
    assert run("predict", old / "run", "--out", old / "again.csv") == 0
    before, after = ((old / name).read_text().splitlines() for name in ("predictions.csv", "again.csv"))
    assert [line.split(",")[:2] for line in after] == [line.split(",")[:2] for line in before]


def test_a_run_goes_on(old: Path) -> None:
    (old / "run" / "result.json").unlink()
    assert run("train", "--resume", "--no-report", "--out", old / "run") == 0
    assert run("report", old / "run", "--out", old / "report.html") == 0
