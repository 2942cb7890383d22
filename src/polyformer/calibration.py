"""Probabilities to trust: a temperature that is fitted on validation nodes, and what it changes.

The validation nodes are cut in two once training has ended. One part chooses the temperature and the threshold. The
other part is held out for :mod:`polyformer.coverage`, whose promise would not hold on nodes that were used before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from polyformer.errors import FileCorrupt
from polyformer.evaluation import Judge
from polyformer.files import finite
from polyformer.metrics import METRICS

__all__ = [
    "HELD_OUT_NODES",
    "TEMPERATURE_NODES",
    "Calibration",
    "calibrate",
    "calibration_facts",
    "calibration_sentence",
    "fit_temperature",
    "nonconformity",
    "soften",
    "split_validation",
]

TEMPERATURE_NODES = 20
"""Fewer validation nodes than this, after some are held out, fit no temperature: it stays 1."""

HELD_OUT_NODES = 1000
"""Half of the validation nodes, but no more than this, are held out: more would hardly make sets sharper."""

_COMPARED = ("log_loss", "calibration_error")
_LEAST_TEMPERATURE, _LARGEST_TEMPERATURE = 0.05, 20.0


@dataclass(frozen=True)
class Calibration:
    """What the validation nodes tell about the outputs of a trained model.

    Attributes:
        temperature: T; probabilities are softmax(outputs / T). 1 leaves them as they are.
        threshold: the probability from which on the second of two unequal classes is predicted; None predicts the most
            probable class.
        held_out: sorted nonconformity of the validation nodes that neither temperature nor threshold has seen; None
            for a model that was trained by a version without it.
        nodes: by how many validation nodes temperature and threshold were chosen.
        effect: log loss and calibration error of the nodes held out, each before and after; none for real values.
    """

    temperature: float = 1.0
    threshold: float | None = None
    held_out: tuple[float, ...] | None = None
    nodes: int = 0
    effect: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For the header of the model's file."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Calibration:
        """From the header of a model's file; earlier versions wrote the threshold alone, or nothing."""
        if "calibration" not in content:
            return cls(threshold=content.get("threshold"))
        fields = dict(content["calibration"])
        if fields["temperature"] <= 0:
            raise FileCorrupt(f"The model's temperature must be positive. Got {fields['temperature']}. Train it again.")
        return cls(**fields | {"held_out": None if fields["held_out"] is None else tuple(fields["held_out"])})


def split_validation(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions among ``count`` validation nodes: those to choose by, and those held out; the same for the same seed.

    >>> chosen_by, held_out = split_validation(5, seed=0)
    >>> len(chosen_by), len(held_out), np.union1d(chosen_by, held_out)
    (3, 2, array([0, 1, 2, 3, 4]))
    """
    order = np.random.default_rng([seed, 20]).permutation(count)
    num_held_out = min(count // 2, HELD_OUT_NODES)
    return np.sort(order[num_held_out:]), np.sort(order[:num_held_out])


def calibrate(scores: np.ndarray, labels: np.ndarray, judge: Judge, seed: int, seen: bool = False) -> Calibration:
    """The calibration of a model by the scores (n, C), or (n, 1) of real values, of its validation nodes.

    Args:
        labels: (n,) of the validation nodes.
        seed: by which the nodes are cut in two.
        seen: the model was trained on the validation nodes themselves, so that they tell nothing about others.
    """
    if seen:
        return Calibration(threshold=judge.threshold(scores, labels), held_out=(), nodes=len(labels))
    chosen_by, held_out = split_validation(len(labels), seed)
    before, temperature = scores, 1.0
    if labels.dtype.kind != "f" and len(chosen_by) >= TEMPERATURE_NODES:
        temperature = fit_temperature(scores[chosen_by], labels[chosen_by])
        scores = soften(scores, temperature)
    threshold = judge.threshold(scores[chosen_by], labels[chosen_by])
    distances = np.sort(nonconformity(scores[held_out], labels[held_out]))
    if not np.isfinite(distances).all():
        distances = distances[:0]
    effect = {} if labels.dtype.kind == "f" else _compare(before[held_out], scores[held_out], labels[held_out])
    return Calibration(temperature, threshold, tuple(distances.tolist()), len(chosen_by), effect)


def fit_temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    r"""The temperature T at which probabilities (n, C) fit the labels (n,) best.

    It minimises the mean over the nodes of :math:`-\log p_T(y) - \frac{1}{n} \frac{1}{C} \sum_c \log p_T(c)` with
    :math:`p_T(c) ∝ p(c)^{1/T}`. The second part counts as one more node whose class is unknown; without it, few nodes
    that are all predicted right would make the model sure of everything.

    >>> too_sure = np.array([[0.99, 0.01]] * 100)
    >>> round(float(soften(too_sure, fit_temperature(too_sure, np.repeat([0, 1], [70, 30])))[0, 0]), 2)
    0.7
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    if not np.isfinite(probabilities).all():
        return 1.0
    logs = _logarithms(probabilities)  # (n, C)
    targets = np.full_like(logs, 1 / (len(labels) * logs.shape[1]))
    targets[np.arange(len(labels)), labels] += 1

    def loss(log_temperature: float) -> float:
        scaled = logs / np.exp(log_temperature)
        return float((targets * (logsumexp(scaled, axis=1, keepdims=True) - scaled)).sum(axis=1).mean())

    bounds = np.log(_LEAST_TEMPERATURE), np.log(_LARGEST_TEMPERATURE)
    best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4}).x
    return float(np.exp(best)) if loss(best) < loss(0.0) else 1.0


def soften(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities (n, C) as they are at a temperature: p^(1/T), divided by the sum over the classes.

    >>> soften(np.array([[0.8, 0.2]]), 2.0).round(3)
    array([[0.667, 0.333]])
    """
    if temperature == 1:
        return probabilities
    logs = _logarithms(probabilities) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _logarithms(probabilities: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))


def nonconformity(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How badly each label fits its scores, (n,): 1 - probability of the class, or distance from the value.

    >>> nonconformity(np.array([[0.7, 0.3]]), np.array([1])), nonconformity(np.array([[3.0]]), np.array([1.0]))
    (array([0.7]), array([2.]))
    """
    if labels.dtype.kind == "f":
        return np.abs(scores[:, 0] - labels)
    return np.asarray(1 - scores[np.arange(len(labels)), labels])


def _compare(before: np.ndarray, after: np.ndarray, labels: np.ndarray) -> dict[str, list[float | None]]:
    """Log loss and calibration error of nodes, each before and after."""
    return {name: [finite(METRICS[name](scores, labels)) for scores in (before, after)] for name in _COMPARED}


def calibration_facts(
    calibration: Calibration, before: np.ndarray | None = None, labels: np.ndarray | None = None
) -> dict[str, Any]:
    """For ``result.json``: threshold, temperature, and log loss and calibration error without it and with it.

    Args:
        before: (n, C) probabilities of test nodes at temperature 1; without test nodes, the nodes that were held out
            of validation tell the effect.
        labels: (n,) of the test nodes.
    """
    held_out = len(calibration.held_out or ())
    facts: dict[str, Any] = {"threshold": calibration.threshold, "coverage_nodes": held_out, "calibration": None}
    if not calibration.effect:
        return facts
    about = {"temperature": calibration.temperature, "fitted_on": calibration.nodes}
    if before is None or labels is None:
        measured = {"measured_on": "held-out validation", "nodes": held_out, **calibration.effect}
    else:
        effect = _compare(before, soften(before, calibration.temperature), labels)
        measured = {"measured_on": "test", "nodes": len(labels), **effect}
    return facts | {"calibration": about | measured}


def calibration_sentence(result: Mapping[str, Any]) -> str | None:
    """What a run's ``result.json`` says of its calibration, for people; None where it says nothing.

    >>> about = {"temperature": 1.5, "fitted_on": 90, "measured_on": "test", "nodes": 60}
    >>> calibration_sentence({"calibration": about | {"log_loss": [0.5, 0.4], "calibration_error": [0.1, 0.05]}})
    'probabilities at temperature 1.500, fitted on 90 validation nodes; on 60 test nodes log loss 0.5000 before and \
0.4000 after, calibration error 0.1000 before and 0.0500 after'
    """
    about = result.get("calibration")
    if about is None:
        return None
    if about["temperature"] == 1:
        words = "probabilities as the model gives them: "
        if about["fitted_on"] >= TEMPERATURE_NODES:
            return f"{words}{about['fitted_on']:,} validation nodes gave no better temperature"
        return (
            f"{words}a temperature needs {TEMPERATURE_NODES} validation nodes, and there are {about['fitted_on']:,} "
            f"besides those held out for --coverage"
        )
    pairs = [
        f"{METRICS[name].title} {about[name][0]:.4f} before and {about[name][1]:.4f} after"
        for name in _COMPARED
        if None not in about[name]
    ]
    words = (
        f"probabilities at temperature {about['temperature']:.3f}, fitted on {about['fitted_on']:,} validation nodes"
    )
    return f"{words}; on {about['nodes']:,} {about['measured_on']} nodes {', '.join(pairs)}" if pairs else words
