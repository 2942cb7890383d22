"""The table of default settings against the baselines, from the records of ``benchmarks.defaults``, for its page.

``python -m benchmarks.default_page`` prints it; ``--page docs/which-model.md`` writes it between the page's two marks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.default_graphs import GRAPHS
from benchmarks.defaults import BASELINES, MEASURED, read_records
from benchmarks.marked_page import print_or_write

COLUMNS = (*BASELINES, "polyformer", "gcn-tuned", "auto")
BEGIN, END = "<!-- defaults: benchmarks.default_page writes what follows -->", "<!-- defaults: end -->"

Scores = dict[tuple[str, str], dict[int, float]]
"""Test scores by graph and contender, then by split."""


def collect(records: list[dict[str, Any]]) -> Scores:
    """Test scores of all records."""
    scores: Scores = {}
    for record in records:
        scores.setdefault((record["graph"], record["contender"]), {})[record["split"]] = record["test"]
    return scores


def paired(ours: dict[int, float], theirs: dict[int, float]) -> float | None:
    """The mean difference on splits that both have, in points; None where there are none."""
    common = ours.keys() & theirs.keys()
    return 100 * float(np.mean([ours[split] - theirs[split] for split in common])) if common else None


def line(name: str, scores: Scores, metric: str) -> str:
    """A row: every contender, and PolyFormer against the best of the three baselines on the same splits."""
    cells = []
    for contender in COLUMNS:
        values = 100 * np.array(list(scores.get((name, contender), {}).values()))
        few = f" ({len(values)})" if 0 < len(values) < 5 else ""
        cells.append(f"{values.mean():.1f} ± {values.std():.1f}{few}" if len(values) else "–")
    gap = difference(name, scores, BASELINES)
    shown = "–" if gap is None else f"{gap:+.1f}"
    return f"| {' | '.join([name, {'roc_auc': 'ROC-AUC'}.get(metric, metric), *cells, shown])} |"


def difference(name: str, scores: Scores, rivals: tuple[str, ...]) -> float | None:
    """PolyFormer's paired difference to the best of some baselines, in points."""
    ours = scores.get((name, "polyformer"), {})
    gaps = [paired(ours, scores.get((name, rival), {})) for rival in rivals]
    return min((gap for gap in gaps if gap is not None), default=None)


def table(records: list[dict[str, Any]]) -> str:
    """The Markdown table with a line below it that sums it up."""
    scores = collect(records)
    metrics = {record["graph"]: record["metric"] for record in records}
    names = [name for name in GRAPHS if name in metrics]
    header = f"| graph | score | {' | '.join(COLUMNS)} | polyformer - best of {', '.join(BASELINES)} |"
    lines = [header, "|---" * (len(COLUMNS) + 3) + "|"]
    lines += [line(name, scores, metrics[name]) for name in names]
    gaps = [gap for name in names if (gap := difference(name, scores, BASELINES)) is not None]
    blind = [gap for name in names if (gap := difference(name, scores, ("mlp",))) is not None]
    if gaps and blind:
        lines += [
            "",
            f"On these {len(gaps)} graphs PolyFormer with its defaults is on average {np.mean(gaps):+.1f} points from "
            f"the best of {', '.join(BASELINES)} (median {np.median(gaps):+.1f}), at worst {min(gaps):+.1f}; "
            f"from mlp at worst {min(blind):+.1f}.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, or write it into the page."""
    print_or_write(__doc__, table(read_records(MEASURED)), BEGIN, END)


if __name__ == "__main__":
    main()
