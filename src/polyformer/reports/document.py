"""One self-contained HTML file from the findings on a run: template, styles, scripts and data in one."""

from __future__ import annotations

import importlib.util
import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.errors import MissingDependency
from polyformer.files import finite, reporting_io_errors, write_whole
from polyformer.filters import BANDS, local_homophily
from polyformer.metrics import METRICS, predicted_classes
from polyformer.reports import charts
from polyformer.reports.explorer import explorer_data
from polyformer.reports.findings import Findings, Outcome, RunRecord
from polyformer.reports.words import alike_kinds, filter_words, first_words, importance_words
from polyformer.training.request import data_sentence

__all__ = ["Figures", "check_extra", "score_rows", "write_page", "write_report"]

Figures = dict[str, tuple[Any, str, str]]
"""Charts by name: a Plotly figure, its title, and the words below it."""


def check_extra() -> None:
    """Refuse to go on without the packages of the extra ``report``."""
    if any(importlib.util.find_spec(name) is None for name in ("plotly", "jinja2")):
        raise MissingDependency("Reports need plotly and jinja2. Install them with: pip install 'polyformer[report]'")


def write_report(findings: Findings, path: Path) -> int:
    """Write the document, whole or not at all; returns its size in bytes."""
    check_extra()
    record, outcome = findings.record, findings.outcome
    sections = _sections(record, outcome)
    figures = {name: figure for section in sections.values() for name, figure in section.items()}
    context = {
        "charts": {section: list(section_figures) for section, section_figures in sections.items()},
        "record": record,
        "outcome": outcome,
        "first_words": first_words(findings),
        "filter_words": filter_words(findings),
        "warnings": (record.result or {}).get("warnings", []),
        "all_scores": _all_scores(record),
        "preprocessing": record.config["task"].get("preprocessing") or [],
        "alike": [] if outcome is None or outcome.filters is None else alike_kinds(outcome.filters),
        "importance_words": _importance_words(outcome),
        "facts": _facts(record),
        "scores": score_rows(record),
        "clusters": _clusters(outcome),
        "relations": _relations(outcome),
    }
    return write_page(path, "report.html", figures, None if outcome is None else explorer_data(outcome), context)


def write_page(path: Path, template: str, figures: Figures, explorer: Any, context: dict[str, Any]) -> int:
    """Fill a template, with styles, scripts and data inside it; returns the size in bytes."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.FunctionLoader(_part)
    )
    shown = {
        name: {"figure": json.loads(figure.to_json()), "title": title, "note": note}
        for name, (figure, title, note) in figures.items()
    }
    page = environment.get_template(template).render(
        **context,
        figures=shown,
        style=_part("report.css"),
        script=_part("report.js"),
        plotly=get_plotlyjs(),
        data=_json({name: figure["figure"] for name, figure in shown.items()}),
        explorer=_json(explorer),
    )
    content = page.encode()
    with reporting_io_errors("the report", path), write_whole(path) as file:
        file.write(content)
    return len(content)


def _part(name: str) -> str:
    return resources.files("polyformer.reports").joinpath("templates", name).read_text(encoding="utf-8")


def _json(content: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever names are in it."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def _facts(record: RunRecord) -> dict[str, str]:
    task, config, result = record.config["task"], record.config, record.result
    facts = {
        "data": data_sentence(task),
        "model": str(config["model"]),
        "split": f"{config['split']} by protocol '{task['protocol']}': {task['train']:,} train, {task['val']:,} "
        f"validation, {task['test']:,} test",
        "seed": str(config["seed"]),
    }
    if result is not None:
        facts["training"] = (
            f"{result['epochs']:,} epochs in {result['seconds']:.1f} s, epoch {result['best_epoch']} kept"
        )
        facts["parameters"] = f"{result['parameters']:,}"
    made = config.get("versions", {})
    facts["versions"] = ", ".join(f"{name} {version}" for name, version in made.items())
    return facts


def _importance_words(outcome: Outcome | None) -> str:
    if outcome is None or outcome.importance is None:
        return ""
    return importance_words(outcome.importance, outcome.card.metric)


def _all_scores(record: RunRecord) -> list[dict[str, Any]]:
    """Every metric of the test nodes: what it is called, and whether larger is better."""
    scores = (record.result or {}).get("scores", {})
    return [
        {
            "title": METRICS[name].title,
            "value": value,
            "better": "larger" if METRICS[name].larger_is_better else "smaller",
        }
        for name, value in scores.items()
        if value is not None and name in METRICS
    ]


def score_rows(record: RunRecord) -> list[dict[str, Any]]:
    """Test score with the interval over resampled test nodes, that of guessing, and validation score."""
    result, rows = record.result or {}, []
    title = METRICS[record.config["card"]["metric"]].title
    for name, key in (("test", "test"), ("guessing", "baseline"), ("validation", "val")):
        if finite(result.get(key)) is not None:
            interval = result.get("test_interval") if key == "test" else None
            rows.append({"name": name, "metric": title, "value": result[key], "interval": interval})
    return rows


def _sections(record: RunRecord, outcome: Outcome | None) -> dict[str, Figures]:
    """The charts of each section of ``report.html``, which shows all charts of a section in this order."""
    sections = {"quality": _learning_figures(record)}
    if outcome is not None:
        sections["quality"] |= _quality_figures(outcome)
        sections["importance"] = _importance_figures(outcome)
        sections["filters"] = _filter_figures(outcome)
    return sections


def _learning_figures(record: RunRecord) -> Figures:
    if not record.metrics:
        return {}
    best = None if record.result is None else record.result["best_epoch"]
    figure = charts.learning_chart(record.metrics, METRICS[record.config["card"]["metric"]].title, best)
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


def _filter_figures(outcome: Outcome) -> Figures:
    """Spectra of input and output, and the filters that the model has."""
    figures: Figures = {}
    if outcome.spectra:
        note = "Where on the spectrum the energy of the features and of the predictions lies; low λ is smooth."
        figures["spectrum"] = charts.spectrum_chart(outcome.spectra), "Spectrum of input and output", note
    if outcome.filters is not None:
        note = "Mean over heads, with one standard deviation over the nodes of the kind."
        figures["clusters"] = charts.cluster_chart(outcome.filters), "Kinds of filters", note
        note = "Share of each order in the filters of a kind: Σ |α_k| ‖g_k‖ over heads."
        figures["orders"] = charts.order_chart(outcome.filters), "What each order contributes", note
    if outcome.unified is not None:
        note = "This model has the same filter for every node."
        if len(outcome.unified) > 8:
            note = f"This model has the same {len(outcome.unified)} filters for every node; the first eight are shown."
        figures["unified"] = charts.unified_chart(outcome.unified), "The filter of all nodes", note
    return figures


def _judged(outcome: Outcome) -> tuple[np.ndarray, np.ndarray, str]:
    """Nodes to judge by, their scores, and a sentence on them: for testing, else for validation, else for training."""
    split = outcome.split
    parts = {"test": split.test, "validation": split.val, "training": split.train}
    known = {name: outcome.scores_of(part) for name, part in parts.items()}
    name = next((name for name, (nodes, _) in known.items() if len(nodes)), "test")
    nodes, scores = known[name]
    return nodes, scores, f"On {len(nodes):,} {name} nodes{'.' if name == 'test' else ': there are no test nodes.'}"


def _clusters(outcome: Outcome | None) -> list[dict[str, Any]]:
    """A row for each kind of filter: size, shares, degree, and where there are classes, homophily and these."""
    if outcome is None or outcome.filters is None:
        return []
    filters, task, shown = outcome.filters, outcome.task, outcome.shown
    degree, labels, rows = outcome.degrees, task.labels[shown], []
    homophily = None if task.is_regression else local_homophily(task.graph, task.labels, shown)
    for c in range(len(filters.clusters.centres)):
        inside = filters.cluster == c
        if not inside.any():
            continue
        row: dict[str, Any] = {"name": f"kind {c + 1}", "size": int(inside.sum()), "share": float(inside.mean())}
        row |= {name: float(filters.bands[inside, i].mean()) for i, name in enumerate(BANDS)}
        row["degree"] = float(degree[inside].mean())
        if homophily is not None:
            known = homophily[inside][np.isfinite(homophily[inside])]
            row["homophily"] = float(known.mean()) if len(known) else None
            counts = np.bincount(labels[inside & (labels >= 0)], minlength=outcome.card.num_classes)
            names = task.shown_classes
            order = np.argsort(-counts, kind="stable")[:4]
            parts = [f"{names[i]} ({counts[i] / max(counts.sum(), 1):.0%})" for i in order if counts[i]]
            row["classes"] = ", ".join(parts)
        rows.append(row)
    return rows


def _relations(outcome: Outcome | None) -> list[dict[str, Any]]:
    """Rank correlation of each share with degree and local homophily; None where one of them does not vary."""
    if outcome is None or outcome.filters is None:
        return []
    from scipy.stats import rankdata

    graph, shown = outcome.task.graph, outcome.shown
    against = {"degree": outcome.degrees.astype(np.float64)}
    if not outcome.task.is_regression:
        against["local homophily"] = local_homophily(graph, outcome.task.labels, shown)

    def correlation(share: np.ndarray, other: np.ndarray) -> float | None:
        known = np.isfinite(other)
        if known.sum() < 3 or np.ptp(other[known]) == 0 or np.ptp(share[known]) == 0:
            return None
        return float(np.corrcoef(rankdata(share[known]), rankdata(other[known]))[0, 1])

    return [
        {"name": f"{name}-pass share"}
        | {to: correlation(outcome.filters.bands[:, i], other) for to, other in against.items()}
        for i, name in enumerate(BANDS)
    ]
