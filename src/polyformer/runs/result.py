"""``result.json``: how good the model of a run is, and what the run took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyformer.calibration import Calibration, calibration_facts, soften
from polyformer.evaluation import Verdict, data_warnings, guess, judge
from polyformer.files import finite
from polyformer.machine import peak_memory
from polyformer.metrics import METRICS, squared_error
from polyformer.runs.preparation import Material
from polyformer.runs.request import RunRequest
from polyformer.runs.versions import versions
from polyformer.training.loop import Trainer

__all__ = ["judgement", "result_of"]


def result_of(
    request: RunRequest,
    material: Material,
    trainer: Trainer,
    judged: dict[str, Any],
    preparation: dict[str, float],
    trials: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """What ``result.json`` holds.

    Args:
        judged: what :func:`judgement` gave.
        preparation: seconds that the preparation took.
        trials: the settings that the run tried before it kept some, as its ``config.json`` holds them.
    """
    stopping, model = trainer.stopping, material.model
    return {
        "metric": material.card.metric,
        "val": finite(stopping.best_score),
        **judged,
        "best_epoch": stopping.best_epoch,
        "epochs": trainer.epoch,
        "seconds": round(trainer.seconds, 3),
        "cpu_seconds": round(trainer.cpu_seconds, 3),
        **preparation,
        "peak_memory_bytes": peak_memory(),
        "batch_size": trainer.settings.batch_size,
        "parameters": int(np.sum([p.numel() for p in model.parameters()])),
        "data": request.data,
        "protocol": material.task.protocol,
        "split": request.split,
        "seed": request.seed,
        "model": request.model,
        "workers": trainer.workers.count,
        "resumed_after": trainer.resumed_after,
        **model.describe(),
        **({"trials": trials} if trials else {}),
        "versions": versions(),
    }


def judgement(material: Material, before: np.ndarray | None, calibration: Calibration) -> dict[str, Any]:
    """How good the model is, by the test nodes.

    Args:
        before: (n, C) scores of the test nodes at temperature 1; None where there are no test nodes.
    """
    task, split, metric = material.task, material.split, material.card.metric
    names = task.shown_classes
    warnings = data_warnings(task.labels, split, names)
    labels = task.labels[split.test]
    about: dict[str, Any] = {"test": None, **calibration_facts(calibration, before, labels)}
    if before is None:
        return about | Verdict(metric, None, {}, None, None, None).to_json() | {"warnings": warnings}
    guessed = guess(task.labels[split.train], task.num_classes)
    verdict = judge(metric, soften(before, calibration.temperature), labels, guessed, calibration.threshold)
    about |= {"test": verdict.score, **verdict.to_json()}
    if task.is_regression and verdict.scores["r2"] is not None:
        about["squared_error"] = squared_error(verdict.scores["r2"], labels)
    return about | {"warnings": verdict.warnings(_guessed_answer(metric, guessed, names)) + warnings}


def _guessed_answer(metric: str, guessed: np.ndarray, names: Sequence[str]) -> str:
    """What guessing is, in words."""
    if not names:
        return f"always answering the mean of the training values, {guessed[0]:.4g},"
    if METRICS[metric].counts is None:
        return "giving every node the shares of the classes in training"
    return f"always answering '{names[int(guessed.argmax())]}', the most common class in training,"
