"""Is a model still good after its graph has changed? How far predictions, tokens and scores moved, and what to do.

A *baseline* is taken of the graph that the run saw, before the first change: predictions of all nodes, and mean and
deviation of the tokens of some nodes, order by order and column by column. It is kept in the run directory.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.bases import Basis
from polyformer.columns import feature_names
from polyformer.errors import DataNotFound, FileCorrupt
from polyformer.files import read_npz, write_npz
from polyformer.graph import Graph
from polyformer.metrics import METRICS, predicted_classes
from polyformer.models import NodeModel
from polyformer.runs.prediction import predict_scores
from polyformer.runs.run import Run
from polyformer.runs.saved_model import ModelCard
from polyformer.tasks import Task
from polyformer.tokens import compute_tokens

__all__ = ["Drift", "drift_of_run", "keep_baseline"]

_BASELINE = "baseline.npz"
_BASELINE_ARRAYS = {
    "scores": ("f", 2),
    "mean": ("f", 2),
    "deviation": ("f", 2),
    "score": ("f", 0),
    "training": ("b", 0),
    "removed": ("i", 1),
}
"""Kind of numbers and number of axes of each array of the baseline."""

_SAMPLE_NODES = 4096
_MOST_CHANGED = 0.05
_MOST_MOVED = 0.25
_MOST_LOST = 0.02


@dataclass(frozen=True)
class Drift:
    """How far a model's graph has moved from the one that its baseline was taken of.

    Attributes:
        run: the run directory.
        since_training: whether the baseline is of the graph that the run was trained on; else of a later version.
        nodes: how many nodes are in both versions.
        changed: how many of these are predicted to be of another class now (values: moved by a tenth of their spread).
        classes: for each class, how many nodes were predicted to have it before and now, and how far its probability
            moved on average.
        columns: by feature column, how far the mean of its tokens moved, in deviations of the baseline; the farthest
            of all orders.
        score_before, score: the run's metric on its validation nodes before and now; None where none have a label.
        reasons: why the model should be trained again; none if it need not.
    """

    run: str
    since_training: bool
    nodes: int
    changed: int
    classes: dict[str, dict[str, float]]
    columns: dict[str, float]
    score_before: float | None
    score: float | None
    reasons: tuple[str, ...]

    def lines(self) -> list[str]:
        """What people are told."""
        since = "since training" if self.since_training else "since the first check"
        share = self.changed / max(1, self.nodes)
        lines = [f"{self.run}: {self.changed:,} of {self.nodes:,} predictions changed {since} ({share:.1%})"]
        farthest = sorted(self.columns.items(), key=lambda item: -item[1])[:3]
        if farthest:
            moved = ", ".join(f"{name} {value:.2f}" for name, value in farthest)
            lines.append(f"{self.run}: tokens moved most in {moved} (deviations of the column)")
        if self.score is not None and self.score_before is not None:
            lines.append(f"{self.run}: validation score {self.score:.4f}, before {self.score_before:.4f}")
        advice = (
            "train again with --start-from: " + "; ".join(self.reasons) if self.reasons else "no need to train again"
        )
        return [*lines, f"{self.run}: {advice}"]

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self) | {"train_again": bool(self.reasons)}


def keep_baseline(run: Path, graph: Path) -> None:
    """Take the baseline of a run on a graph directory as it is now, unless one is there."""
    if (run / _BASELINE).exists():
        return
    card, model = Run.open_model(run).load()
    task = Run(run).task(str(graph))
    scores, moments, score = _measure(Run(run), card, model, task, str(graph))
    trained_on = Run(run).config.get("task", {}).get("fingerprint", "")
    training = np.array(trained_on.partition("+")[0] == task.graph.unscaled.fingerprint)
    arrays = {"scores": scores, "mean": moments[0], "deviation": moments[1], "score": np.array(score)}
    write_npz(run / _BASELINE, arrays | {"training": training, "removed": task.graph.removed})


def drift_of_run(run: Path, graph: Path) -> Drift:
    """How far a run's graph directory has moved since the baseline was taken."""
    if not (run / _BASELINE).exists():
        raise DataNotFound(
            f"'{run}' has no baseline to compare with. Take one before the graph changes: polyformer update GRAPH "
            f"CHANGES --check {run}."
        )
    before = _read_baseline(run / _BASELINE)
    card, model = Run.open_model(run).load()
    task = Run(run).task(str(graph))
    scores, (mean, _), score = _measure(Run(run), card, model, task, str(graph))
    count = min(len(before["scores"]), len(scores))
    nodes = np.setdiff1d(np.arange(count), np.union1d(before["removed"], task.graph.removed))
    old, new = before["scores"][nodes], scores[nodes]
    changed, classes = _changed(card, old, new)
    moved = np.abs(mean - before["mean"]) / np.maximum(before["deviation"], 1e-12)
    moved = np.where(before["deviation"] > 0, moved, 0.0).max(axis=0)
    names = feature_names(task.columns, len(moved))
    columns: dict[str, float] = {}
    for name, value in zip(names, moved, strict=True):
        columns[name] = max(columns.get(name, 0.0), float(value))
    earlier = None if np.isnan(before["score"]) else float(before["score"])
    now = None if np.isnan(score) else score
    reasons = _reasons(card, changed / max(1, len(nodes)), columns, earlier, now)
    training = bool(before["training"])
    return Drift(str(run), training, len(nodes), changed, classes, columns, earlier, now, reasons)


def _read_baseline(path: Path) -> dict[str, np.ndarray]:
    """The arrays that :func:`keep_baseline` wrote."""
    arrays = read_npz(path, list(_BASELINE_ARRAYS))
    for name, (kind, num_axes) in _BASELINE_ARRAYS.items():
        if arrays[name].dtype.kind != kind or arrays[name].ndim != num_axes:
            raise FileCorrupt(
                f"'{path}' is damaged: its '{name}' is {arrays[name].dtype} of shape {arrays[name].shape}. Remove it, "
                f"and take the baseline again."
            )
    return arrays


def _measure(
    run: Run, card: ModelCard, model: NodeModel, task: Task, graph: str
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], float]:
    """Scores of all nodes, mean and deviation of tokens (K+1, d), and the metric on the validation nodes."""
    scores = predict_scores(model, card.reader, task.graph, labels=run.shown_labels(task, graph))
    score, split = float("nan"), run.split_of(task)
    if split is not None and len(split.val):
        val = split.val
        score = METRICS[card.metric](scores[val], task.labels[val], card.threshold)
    return scores, _moments(card, model, task.graph), score


def _moments(card: ModelCard, model: NodeModel, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    alive = graph.present_nodes
    nodes = alive[np.unique(np.linspace(0, len(alive) - 1, min(len(alive), _SAMPLE_NODES)).astype(np.int64))]
    basis: str | Basis = "chebyshev"
    order, loops = 0, False
    if "update" in model.capabilities:
        reads = model.on_tokens(card.model)
        basis, order, loops = reads.basis, reads.order, reads.self_loops
    tokens = compute_tokens(graph, basis, order, loops, nodes).numpy().astype(np.float64)
    return tokens.mean(axis=0), tokens.std(axis=0)


def _changed(card: ModelCard, old: np.ndarray, new: np.ndarray) -> tuple[int, dict[str, dict[str, float]]]:
    if card.objective == "regression":
        return int(np.count_nonzero(np.abs(new - old)[:, 0] > 0.1 * max(float(old.std()), 1e-12))), {}
    before, after = predicted_classes(old, card.threshold), predicted_classes(new, card.threshold)
    names = card.class_names or [str(number) for number in range(old.shape[1])]
    classes = {
        str(name): {
            "before": int(np.count_nonzero(before == number)),
            "now": int(np.count_nonzero(after == number)),
            "moved": float(np.abs(new[:, number] - old[:, number]).mean()) if len(old) else 0.0,
        }
        for number, name in enumerate(names)
    }
    return int(np.count_nonzero(before != after)), classes


def _reasons(
    card: ModelCard, changed: float, columns: dict[str, float], before: float | None, now: float | None
) -> tuple[str, ...]:
    """Why to train again, by three limits that the documentation names."""
    reasons = []
    if changed > _MOST_CHANGED:
        reasons.append(f"{changed:.1%} of the predictions changed, more than {_MOST_CHANGED:.0%}")
    name = max(columns, key=columns.__getitem__, default="")
    if name and columns[name] > _MOST_MOVED:
        reasons.append(f"tokens of '{name}' moved by {columns[name]:.2f} deviations, more than {_MOST_MOVED}")
    if before is not None and now is not None and METRICS[card.metric].gain(before, now) > _MOST_LOST:
        reasons.append(f"the validation score fell from {before:.4f} to {now:.4f}")
    return tuple(reasons)
