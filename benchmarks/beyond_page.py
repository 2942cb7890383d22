"""The table of the cascade beside the other models, from the records under ``results/``, for its page.

``python -m benchmarks.beyond_page`` prints it; ``--page docs/cascade.md`` writes it between the page's two marks. Of a
model with several settings or bases, the row with the best mean validation score counts, among those with ten runs, or
else with three. Differences are over the splits that both have, with an interval by Student's t.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.marked_page import print_or_write
from polyformer.experiments.records import Records

PLANS = (
    "beyond", "beyond-baselines", "table5-polyformer-paper", "table5-polyformer-ours", "table5-baselines",
    "table5-specformer", "table4", "models-convolutions", "models-tokens", "label-tokens-without",
    "label-tokens-without-polyformer",
)  # fmt: skip
"""Plans whose runs are shown no labels as input."""

DATASETS = ("minesweeper", "tolokers", "chameleon_filtered", "squirrel_filtered", "citeseer", "pubmed", "cs", "physics")
FIRST, SHOWN = "cascade", 5
ENOUGH = (3, 10)
BEGIN, END = "<!-- beyond: benchmarks.beyond_page writes what follows -->", "<!-- beyond: end -->"
HEADER = """\
| data set | model | test | runs | validation | parameters | CPU s a run | cascade minus it, 95 % interval of pairs |
|---|---|---|---|---|---|---|---|"""


@dataclass
class Series:
    """The runs of a model with the same settings.

    Attributes:
        results: the result of each split.
    """

    dataset: str
    model: str
    basis: str | None
    results: dict[int, dict[str, Any]] = field(default_factory=dict)

    def mean(self, name: str) -> float:
        """The mean of a number of the results."""
        return float(np.mean([result[name] for result in self.results.values()]))

    @property
    def rank(self) -> tuple[int, float]:
        """Of the series of a model, the one with the highest rank is shown."""
        return sum(len(self.results) >= runs for runs in ENOUGH), self.mean("val")

    @property
    def name(self) -> str:
        """The model with its basis."""
        return self.model if self.basis is None else f"{self.model} ({self.basis})"


def collect(records: Iterable[tuple[str, dict[str, Any]]]) -> dict[tuple[str, str], Series]:
    """The best series of every data set and model, by validation; records come with their names."""
    every: dict[tuple[str, ...], Series] = {}
    for name, record in records:
        if record["dataset"] not in DATASETS or record["config"].get("protocol"):
            continue
        key = (record["plan"], record["dataset"], record["model"], str(record["basis"]), name.rpartition("-")[2])
        series = every.setdefault(key, Series(record["dataset"], record["model"], record["basis"]))
        series.results[record["config"]["split"]] = record["result"]
    best: dict[tuple[str, str], Series] = {}
    for series in every.values():
        place = series.dataset, series.model
        if place not in best or series.rank > best[place].rank:
            best[place] = series
    return best


def paired(ours: Series, theirs: Series) -> str:
    """The mean difference in points on the splits of both, and its 95 % interval."""
    common = ours.results.keys() & theirs.results.keys()
    gaps = [100 * (ours.results[split]["test"] - theirs.results[split]["test"]) for split in common]
    if len(gaps) < 2:
        return f"{gaps[0]:+.2f}, one split" if gaps else "–"
    half = float(stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / len(gaps) ** 0.5)
    return f"{np.mean(gaps):+.2f} ± {half:.2f}, {len(gaps)} splits"


def line(ours: Series, series: Series) -> str:
    """A row of the table."""
    scores = [100 * result["test"] for result in series.results.values()]
    spread = f" ({np.std(scores, ddof=1):.2f})" if len(scores) > 1 else ""
    seconds = [result.get("cpu_seconds") for result in series.results.values()]
    cells = [
        series.dataset,
        f"**{series.name}**" if series is ours else series.name,
        f"{np.mean(scores):.2f}{spread}",
        str(len(scores)),
        f"{100 * series.mean('val'):.2f}",
        f"{series.mean('parameters'):,.0f}",
        "–" if None in seconds else f"{np.mean([second for second in seconds if second is not None]):.0f}",
        "" if series is ours else paired(ours, series),
    ]
    return f"| {' | '.join(cells)} |"


def table(best: dict[tuple[str, str], Series]) -> str:
    """The Markdown table: on every data set the cascade and the models with the highest test scores."""
    lines = [HEADER]
    for dataset in DATASETS:
        ours = best.get((dataset, FIRST))
        if ours is None:
            continue
        others = [series for (place, model), series in best.items() if place == dataset and model != FIRST]
        shown = sorted(others, key=lambda series: -series.mean("test"))[:SHOWN]
        lines += [line(ours, series) for series in sorted([ours, *shown], key=lambda series: -series.mean("test"))]
    return "\n".join(lines) + "\n"


def read(folder: Path = Path("results")) -> dict[tuple[str, str], Series]:
    """The best series, from the folder of records."""
    records = Records(folder)
    return collect(pair for plan in PLANS for pair in records.of_plan(plan).read().items())


def main() -> None:
    """Print the table, or write it into the page."""
    print_or_write(__doc__, table(read()), BEGIN, END)


if __name__ == "__main__":
    main()
