"""The sections of a report: what each of them shows, in the order of ``SECTIONS``.

A section is one function here, its line in the table, and the templates ``section_<name>.html`` (what stands before its
charts) and ``section_<name>_after.html`` (what stands behind them), of which one may be missing. In them ``content`` is
what the function gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyformer.calibration import calibration_sentence
from polyformer.files import finite
from polyformer.metrics import METRICS, predicted_classes
from polyformer.reports import charts
from polyformer.reports.filter_section import filter_figures, kinds_of_filters, relations
from polyformer.reports.findings import Findings
from polyformer.reports.label_effect import label_words
from polyformer.reports.outcome import Outcome
from polyformer.reports.words import alike_kinds, filter_words, first_words, importance_words
from polyformer.runs.repeating import repeat_command
from polyformer.runs.run import Run
from polyformer.settings import in_words

__all__ = ["SECTIONS", "Figures", "Section", "score_rows"]

Figures = dict[str, tuple[Any, str, str]]
"""Charts by name: a Plotly figure, its title, and the words below it."""


@dataclass(frozen=True)
class Section:
    """What a section shows.

    Attributes:
        title: its heading.
        content: what its templates read.
        figures: its charts, all of which are shown in this order.
    """

    title: str
    content: dict[str, Any]
    figures: Figures = field(default_factory=dict)


def _result(findings: Findings) -> Section:
    """Words, scores, and what a reader must know."""
    return Section(
        "The result",
        {
            "first_words": first_words(findings),
            "scores": score_rows(findings.run),
            "filter_words": filter_words(findings),
            "notes": findings.notes,
        },
    )


def _run(findings: Findings) -> Section:
    """Data, settings, and the command that repeats the run."""
    run, outcome = findings.run, findings.outcome
    return Section(
        "What was run",
        {
            "facts": _facts(run),
            "preprocessing": run.facts.preprocessing,
            "command": repeat_command(run),
            "fit": outcome is not None and outcome.split.fit,
        },
    )


def _quality(findings: Findings) -> Section:
    """Every metric, learning curves, and predictions against labels."""
    figures = _learning_figures(findings.run)
    if findings.outcome is not None:
        figures |= _quality_figures(findings.outcome)
    calibrated = calibration_sentence(findings.run.result or {})
    content = {"all_scores": _all_scores(findings.run), "calibration": calibrated}
    return Section("How well it does", content, figures)


def _labels(findings: Findings) -> Section | None:
    """Which predictions rest on known labels."""
    effect, outcome = findings.label_effect, findings.outcome
    if effect is None or outcome is None:
        return None
    return Section("What the known labels do", {"words": label_words(effect, outcome.card.metric)})


def _importance(findings: Findings) -> Section | None:
    """Which feature columns matter."""
    outcome = findings.outcome
    if outcome is None or outcome.importance is None:
        return None
    words = importance_words(outcome.importance, outcome.card.metric)
    return Section("Which feature columns matter", {"words": words}, _importance_figures(outcome)) if words else None


def _filters(findings: Findings) -> Section | None:
    """The filters that the model has, and their kinds."""
    outcome = findings.outcome
    if outcome is None:
        return None
    content = {
        "alike": [] if outcome.filters is None else alike_kinds(outcome.filters),
        "clusters": kinds_of_filters(outcome),
        "relations": relations(outcome),
    }
    return Section("What it learned", content, filter_figures(outcome))


def _explorer(findings: Findings) -> Section | None:
    """The map of nodes, which ``report.js`` draws."""
    return None if findings.outcome is None else Section("Explorer", {})


SECTIONS: dict[str, Callable[[Findings], Section | None]] = {
    "result": _result,
    "run": _run,
    "quality": _quality,
    "labels": _labels,
    "importance": _importance,
    "filters": _filters,
    "explorer": _explorer,
}
"""The sections by name, in the order in which the report shows them; a section that gives None is left out."""


def _facts(run: Run) -> dict[str, str]:
    data, request, result = run.facts, run.request, run.result
    facts = {
        "data": data.sentence,
        "model": request.model,
        "split": f"{request.split} by protocol '{data.protocol}': {data.train:,} train, {data.val:,} validation, "
        f"{data.test:,} test",
        "seed": str(request.seed),
    }
    if result is not None:
        facts["training"] = (
            f"{result['epochs']:,} epochs in {result['seconds']:.1f} s, epoch {result['best_epoch']} kept"
        )
        facts["parameters"] = f"{result['parameters']:,}"
    if run.trials:
        facts["settings tried"] = "; ".join(_trial_words(trial) for trial in run.trials)
    facts["versions"] = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    return facts


def _trial_words(trial: Mapping[str, Any]) -> str:
    """One of the attempts from which a run took its settings."""
    score = "no score" if trial["val"] is None else f"validation {trial['val']:.4f}"
    kept = ", kept" if trial["kept"] else ""
    return f"{in_words(trial['settings']) or 'the defaults'}: {score}{kept}"


def _all_scores(run: Run) -> list[dict[str, Any]]:
    """Every metric of the test nodes: what it is called, and whether larger is better."""
    scores = (run.result or {}).get("scores", {})
    return [
        {
            "title": METRICS[name].title,
            "value": value,
            "better": "larger" if METRICS[name].larger_is_better else "smaller",
        }
        for name, value in scores.items()
        if value is not None and name in METRICS
    ]


def score_rows(run: Run) -> list[dict[str, Any]]:
    """Test score with the interval over resampled test nodes, that of guessing, and validation score."""
    result, rows = run.result or {}, []
    title = METRICS[run.card.metric].title
    for name, key in (("test", "test"), ("guessing", "baseline"), ("validation", "val")):
        if finite(result.get(key)) is not None:
            interval = result.get("test_interval") if key == "test" else None
            rows.append({"name": name, "metric": title, "value": result[key], "interval": interval})
    return rows


def _learning_figures(run: Run) -> Figures:
    metrics, result = run.metrics, run.result
    if not metrics:
        return {}
    best = None if result is None else result["best_epoch"]
    figure = charts.learning_chart(metrics, METRICS[run.card.metric].title, best)
    note = "Training loss and validation score of every epoch; the dotted line is the epoch that was kept."
    return {"learning": (figure, "Learning curves", note)}


def _quality_figures(outcome: Outcome) -> Figures:
    """Predictions against labels, on the nodes that :func:`_judged` selects."""
    figures: Figures = {}
    nodes, scores, where = _judged(outcome)
    labels = outcome.task.labels[nodes]
    if len(nodes) and outcome.task.is_regression:
        figures["fit"] = charts.fit_chart(scores, labels), "Predictions", where
    elif len(nodes):
        if outcome.card.num_classes == 2 and len(np.unique(labels)) == 2:
            figures["roc"] = charts.roc_chart(scores, labels), "ROC", where
        names, predicted = outcome.task.shown_classes, predicted_classes(scores, outcome.card.threshold)
        note = f"{where} Numbers are nodes, shades their share of the class."
        figures["confusion"] = charts.confusion_chart(predicted, labels, names), "Confusion matrix", note
        gap = METRICS["calibration_error"](scores, labels)
        note = f"{where} Expected calibration error {gap:.4f}; the size of a point is its number of nodes."
        figures["calibration"] = charts.calibration_chart(scores, labels), "Calibration", note
    return figures


def _importance_figures(outcome: Outcome) -> Figures:
    if outcome.importance is None or not outcome.importance.names:
        return {}
    figure = charts.importance_chart(outcome.importance, METRICS[outcome.card.metric].title)
    note = "The mean of the repeats, with one standard deviation to each side."
    return {"importance": (figure, "What shuffling a column costs", note)}


def _judged(outcome: Outcome) -> tuple[np.ndarray, np.ndarray, str]:
    """Nodes to judge by, their scores, and a sentence on them: for testing, else for validation, else for training."""
    split = outcome.split
    parts = {"test": split.test, "validation": split.val, "training": split.train}
    known = {name: outcome.scores_of(part) for name, part in parts.items()}
    name = next((name for name, (nodes, _) in known.items() if len(nodes)), "test")
    nodes, scores = known[name]
    return nodes, scores, f"On {len(nodes):,} {name} nodes{'.' if name == 'test' else ': there are no test nodes.'}"
