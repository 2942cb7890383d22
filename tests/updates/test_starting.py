"""A run that begins with the weights of another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polyformer as pf
from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.runs.run import Run

SMALL = {"order": 2, "hidden_channels": 8, "heads": 2, "epochs": 2}
BOARD = "minefield:width=12,height=10"


def test_weights_settings_and_scaling_are_those_of_the_run(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    graph = Graph(random.integers(0, 60, (2, 120)), 100 * random.standard_normal((60, 3)), 60)
    labels = random.integers(0, 3, 60)
    first = pf.train(graph, out=tmp_path / "first", labels=labels, **SMALL)
    changed = graph.updated(add_edges=[[60, 1]], add_features=[[900.0, 0.0, 1.0]])
    labels = np.append(labels, 0)
    second = pf.train(changed, out=tmp_path / "second", labels=labels, start_from=first.path, epochs=1, lr=1e-12)
    assert second.card.scaling == first.card.scaling
    assert second.card.settings["order"] == 2
    weights = [run.model().state_dict() for run in (first, second)]
    assert all(np.allclose(weights[0][name], weights[1][name], atol=1e-6) for name in weights[0])
    assert Run.open(second.path).request.start_from == str(first.path.resolve())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_channels": 16}, "cannot start from .* has the shape"),
        ({"model": "gcn"}, "must be a run of the model 'gcn'"),
    ],
)
def test_a_run_that_does_not_fit_is_refused(tmp_path: Path, arguments: dict, message: str) -> None:
    first = pf.train(BOARD, out=tmp_path / "first", **SMALL)
    with pytest.raises(InvalidParameter, match=message):
        pf.train(BOARD, out=tmp_path / "second", start_from=first.path, **arguments)
    assert not (tmp_path / "second").exists()


def test_new_nodes_of_a_run(tmp_path: Path) -> None:
    run = pf.train(BOARD, out=tmp_path / "run", **SMALL)
    graph = run.task().graph
    scores = {mode: run.predict_new(graph.features[:2], [[120, 3], [121, 120]], mode) for mode in ("frozen", "full")}
    assert scores["frozen"].shape == scores["full"].shape == (2, 2)
    assert not np.array_equal(scores["frozen"], scores["full"])
