"""What the report says in sentences, for readers who have never heard of a spectrum."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from polyformer.files import finite
from polyformer.filters import Filters
from polyformer.metrics import METRICS
from polyformer.reports.findings import Findings
from polyformer.reports.importance import Importance
from polyformer.runs.run import Run

__all__ = ["alike_kinds", "filter_words", "first_words", "importance_words"]

NEARLY_THE_SAME = 0.15
"""Kinds whose mean responses differ by less than this share of the larger one's norm are called nearly the same."""


def first_words(findings: Findings) -> str:
    """The first paragraph: the score, beside guessing, whether it is good, and what the model learned."""
    outcome, words = findings.outcome, _result_words(findings.run)
    if outcome is None or (outcome.filters is None and outcome.unified is None):
        return words
    whose = "Every node has a filter of its own" if outcome.filters is not None else "All nodes share one filter"
    return (
        f"{words} {whose}, learned from the data: a curve that says how much of what a node shares with its "
        f"neighbours, and how much of what sets it apart from them, enters its prediction."
    ).strip()


def _result_words(run: Run) -> str:
    """The score, beside guessing, and whether it is good."""
    result, facts = run.result or {}, run.facts
    test, val = finite(result.get("test")), finite(result.get("val"))
    if test is None:
        if val is None:
            return ""
        return (
            f"There is no test score, so how well the model does on nodes that it has never seen is not known. On the "
            f"{facts.val:,} validation nodes, by which it was selected, its {METRICS[result['metric']].title} is "
            f"{val:.4f}."
        )
    metric = METRICS[result["metric"]]
    perfect = "1 is perfect" if metric.larger_is_better else "smaller is better, 0 is perfect"
    words = f"On {facts.test:,} test nodes the model scores {test:.4f} in {metric.title} ({perfect})."
    if result.get("test_interval") is not None:
        least, most = result["test_interval"]
        words += f" With other test nodes of the same kind it would mostly lie between {least:.4f} and {most:.4f}."
    baseline = finite(result.get("baseline"))
    return words if baseline is None else f"{words} {_beside_guessing(result, test, baseline)}"


def _beside_guessing(result: dict[str, object], test: float, baseline: float) -> str:
    metric = METRICS[str(result["metric"])]
    what = "the most common class" if metric.counts is not None else "the shares of the classes"
    what = "the mean value" if metric.labels == "values" else what
    words = f"Guessing, which knows only {what} among the training nodes, reaches {baseline:.4f}."
    gain, gains = metric.gain(test, baseline), result.get("gain_interval")
    if gain <= 0:
        return f"{words} So the model is no better than guessing."
    if isinstance(gains, list) and gains[0] <= 0:
        return f"{words} The difference is so small that it may be chance."
    room = 1.0 - baseline if metric.larger_is_better else baseline
    share = f": it closes {100 * gain / room:.0f} % of the gap between guessing and a perfect score" if room > 0 else ""
    return f"{words} So the model is better than guessing{share}."


def filter_words(findings: Findings) -> list[str]:
    """What a filter is, and how to read one."""
    outcome = findings.outcome
    if outcome is None or (outcome.filters is None and outcome.unified is None):
        return []
    return [
        "How to read a filter: whatever the nodes carry, such as a feature, is a mixture of slow parts, which are "
        "alike at neighbouring nodes, and fast parts, which differ from neighbour to neighbour. The frequency λ sorts "
        "these parts: λ = 0 is the same at all neighbours, λ = 2 is opposite at neighbours. A filter is a curve over λ "
        "that says how strongly each part is used; a part at which the curve is zero is ignored.",
        "A curve that is far from zero near λ = 0 means: look at what you have in common with your neighbours. A curve "
        "that is far from zero near λ = 2 means: look at how you differ from them.",
    ]


def alike_kinds(filters: Filters) -> list[str]:
    """A sentence for every two kinds of filters that are nearly the same."""
    responses, sentences = filters.responses, []
    kinds = [c for c in range(len(filters.clusters.centres)) if (filters.cluster == c).any()]
    means = {c: responses[filters.cluster == c].mean(axis=0) for c in kinds}
    for a, b in combinations(kinds, 2):
        larger = max(float(np.linalg.norm(means[a])), float(np.linalg.norm(means[b])))
        share = float(np.linalg.norm(means[a] - means[b])) / larger if larger > 0 else 0.0
        if share < NEARLY_THE_SAME:
            sentences.append(
                f"Kinds {a + 1} and {b + 1} are nearly the same: their mean curves differ by {100 * share:.0f} % of "
                f"the larger."
            )
    return sentences


def importance_words(importance: Importance, metric: str) -> str:
    """What the bars show, and the most important columns."""
    title = METRICS[metric].title
    if not importance.names:
        return importance.remark
    words = (
        f"Each column was shuffled among all nodes {_times(importance.repeats)}, which makes it useless and leaves the "
        f"others as they are. A bar tells by how much the {title} of {importance.num_nodes:,} validation nodes gets "
        f"worse; undisturbed it is {importance.score:.4f}."
    )
    clear = [
        name
        for name, loss, spread in zip(importance.names, importance.losses, importance.spread, strict=True)
        if loss > max(2 * spread, 0.1 * importance.losses[0], 1e-9)
    ]
    if clear:
        words += f" {'These matter' if len(clear) > 1 else 'This one matters'} most: {', '.join(clear[:3])}."
    else:
        words += " No column matters clearly by itself."
    words += " Columns that tell the same can stand in for one another, so that each of them seems to matter little."
    return f"{words} {importance.remark}".strip()


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
