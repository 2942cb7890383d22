from __future__ import annotations

import numpy as np
import pytest
import torch

from polyformer.errors import FileCorrupt, InvalidData
from polyformer.graph import Graph
from polyformer.objectives import OBJECTIVES
from polyformer.splits import Split, hold_out, uniform_split
from polyformer.tasks import Task

GRAPH = Graph([[0, 1, 2], [1, 2, 3]], np.eye(6), num_nodes=6)
SPLIT = Split(np.array([0, 1]), np.array([2, 3]), np.array([4, 5]))


def test_objectives_equal_their_formulas() -> None:
    torch.manual_seed(0)
    outputs, labels, weights = torch.randn(8, 3), torch.randint(0, 3, (8,)), torch.tensor([1.0, 2.0, 0.5])
    log_probability = outputs.log_softmax(1)[torch.arange(8), labels]
    expected = -(weights[labels] * log_probability).sum() / weights[labels].sum()
    multiclass = OBJECTIVES["multiclass"]
    ours = multiclass.loss(outputs, labels, weights) / multiclass.normaliser(labels, weights)
    assert torch.allclose(ours, expected)
    assert multiclass.normaliser(labels) == 8
    one, binary = torch.randn(8, 1), torch.randint(0, 2, (8,))
    two = torch.cat([torch.zeros(8, 1), one], dim=1)  # a logit is a two-class softmax with the other at zero
    for weight in (None, torch.tensor([1.0, 3.0])):
        ours = OBJECTIVES["binary"].loss(one, binary, weight)
        assert torch.allclose(ours, OBJECTIVES["multiclass"].loss(two, binary, weight), atol=1e-6)
    assert np.allclose(OBJECTIVES["binary"].scores(one), two.double().softmax(1))


def test_objective_and_metric_follow_the_labels() -> None:
    assert Task("t", GRAPH, [0, 1, 0, 1, 0, 1], [SPLIT]).objective.name == "binary"
    assert Task("t", GRAPH, [0, 1, 2, 1, 0, 1], [SPLIT]).objective.name == "multiclass"
    real = Task("t", GRAPH, [0.0, 1.0, 0.5, 1.0, np.nan, 1.0], [Split(np.array([0]), np.array([1]), np.array([2]))])
    assert (real.objective.name, real.metric, real.num_classes) == ("regression", "r2", 0)


@pytest.mark.parametrize(
    ("labels", "splits", "metric", "message"),
    [
        ([0, 1], [SPLIT], "", r"'labels' must have shape \(6,\)"),
        ([0, 1, -1, 0, 1, 1], [SPLIT], "", "Node 2 is in the val split but has no label"),
        (
            [0, 1, 0, 0, 1, 1],
            [Split(np.array([0, 7]), np.array([2]), np.array([3]))],
            "",
            r"train nodes must lie in 0\.\.5",
        ),
        ([0, 1, 0, 0, 1, 1], [Split(np.array([0]), np.array([0]), np.array([3]))], "", "Node 0 is in the split more"),
        ([0, 1, 0, 0, 1, 1], [Split(np.array([], int), np.array([0]), np.array([3]))], "", "no training nodes"),
        ([0, 1, 2, 0, 1, 1], [SPLIT], "mae", "'mae' does not fit class labels. Use one of: accuracy, "),
        (np.arange(6.0), [SPLIT], "brier", "'brier' does not fit real-valued labels. Use one of: r2, mae, rmse."),
        ([0, 1, 2, 0, 1, 1], [SPLIT], "f1", "Unknown metric 'f1'"),
        ([0.0, np.inf, 2, 0, 1, 1], [SPLIT], "", "Got infinity at node 1"),
    ],
)
def test_bad_tasks(labels, splits, metric: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Task("t", GRAPH, labels, splits, metric=metric)


@pytest.mark.parametrize("ids", [None, np.array(["a", "b", "c", "d", "e", "f"])])
def test_save_and_load(tmp_path, ids) -> None:
    task = Task("t", GRAPH, [0, 1, 0, 1, 0, 1], [SPLIT], "mine", "roc_auc", ("no", "yes"), ids)
    task.save(tmp_path / "task")
    loaded = Task.load(tmp_path / "task")
    for name in ("name", "protocol", "metric", "class_names", "num_classes"):
        assert getattr(loaded, name) == getattr(task, name)
    assert np.array_equal(loaded.labels, task.labels)
    assert np.array_equal(loaded.splits[0].test, [4, 5])
    assert (loaded.ids is None) == (ids is None)
    (tmp_path / "task" / "splits.npz").write_bytes(b"not a zip")
    with pytest.raises(FileCorrupt, match=r"splits\.npz' is not the file that was written"):
        Task.load(tmp_path / "task")


def test_a_bare_graph_directory_is_a_task_without_splits(tmp_path) -> None:
    GRAPH.save(tmp_path / "graph")
    task = Task.load(tmp_path / "graph")
    assert len(task.splits) == 0
    assert (task.labels == -1).all()


def test_uniform_and_held_out_nodes() -> None:
    labels = np.array([0] * 50 + [1] * 30 + [-1] * 20)
    split = uniform_split(labels, 3)
    assert (len(split.train), len(split.val), len(split.test)) == (48, 16, 16)
    split.check(labels)
    kept, drawn = hold_out(split.train, labels, seed=0)
    assert np.array_equal(np.sort(np.concatenate([kept, drawn])), split.train)
    assert set(labels[drawn]) == {0, 1}
    with pytest.raises(InvalidData, match="cannot be drawn from 2 training nodes"):
        hold_out(np.array([0, 60]), labels, seed=0)
