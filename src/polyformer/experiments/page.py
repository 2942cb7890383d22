"""The pages of all tables: what has been run here, beside what was published, with the commands that repeat it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from polyformer.experiments import EXPERIMENTS, Experiment
from polyformer.experiments.matrix import standing, to_matrix
from polyformer.experiments.plan import Series, open_experiments
from polyformer.experiments.ranks import Ranks, draw_ranks, rank_models
from polyformer.experiments.records import Records
from polyformer.experiments.summary import Row, summarise, to_markdown

__all__ = ["RANKED", "ResultsPages", "results_pages"]

RANKED = ("models", "beyond")
"""Experiments whose models are ranked together: all models of this package on the data sets of Table 5."""

_OURS = ("polyformer", "polyattn")

_INTRODUCTION = """\
# Results

Every number is computed from the records under `results/`: one record for each run, with its configuration, versions,
time and memory. `make results` writes this page and its [details]({details}) from them. Epochs are chosen on
validation scores and the test score is read once; where a signal is fitted (Tables 2 and 7, Figure 2) all pixels are
both, as in the paper.

A cell has our mean ± the 95 % interval of the mean and the number of runs; the published value stands in small type
below. ▲ is better than the published interval, ● inside it, ▼ worse; no sign stands where nothing was published.
Accuracy and ROC-AUC are in percent. † marks runs whose settings have changed since. The [details]({details}) give the
reason for a number that is worse, and the deviation, the time and the memory of each row.
"""

_DETAILS_INTRODUCTION = """\
# Results in detail

The rows behind the [results]({page}), written by `make results`. ± is the 95 % interval of the mean: by the bootstrap
as in the paper from five runs on, by Student's t for fewer. Times are processor times, of the earliest runs wall times.
Rows without a run are left out; a command goes on where the last one stopped. † marks rows with runs whose settings
have changed since; the note says which. Some notes also quote single runs that were made to explain a difference and
have no record.
"""


@dataclass(frozen=True)
class ResultsPages:
    """What is written from the records: a page of matrices, a page of details and a chart of ranks.

    Attributes:
        ranks: an SVG; None where too few models have enough runs.
    """

    page: str
    details: str
    ranks: str | None


@dataclass(frozen=True)
class _Section:
    """An experiment and the rows of its table, also those without a run."""

    name: str
    experiment: Experiment
    rows: Sequence[Row]

    @property
    def with_runs(self) -> list[Row]:
        """The rows that have a run."""
        return [row for row in self.rows if row.runs]


def results_pages(records: Records, names: Iterable[str] = EXPERIMENTS, stem: str = "results") -> ResultsPages:
    """Markdown with a section for each experiment that has a record.

    Args:
        stem: name of the page's file without its ending; the details are ``<stem>-details.md``, the chart
            ``<stem>-ranks.svg``.
    """
    experiment_names = list(names)
    opened = zip(experiment_names, open_experiments(experiment_names), strict=True)
    sections = [_summarised(name, experiment, series, records) for name, (experiment, series) in opened]
    sections = [section for section in sections if section.with_runs]
    ranks = rank_models([row for section in sections if section.name in RANKED for row in section.with_runs])
    overview = [_INTRODUCTION.format(details=f"{stem}-details.md"), *_matrices(sections)]
    if ranks is not None:
        overview.append(_rank_section(ranks, f"{stem}-ranks.svg"))
    details = [_DETAILS_INTRODUCTION.format(page=f"{stem}.md"), *(_details(section) for section in sections)]
    chart = None if ranks is None else draw_ranks(ranks, "Mean ranks of models")
    return ResultsPages("\n".join(overview), "\n".join(details), chart)


def _summarised(name: str, experiment: Experiment, series: list[Series], records: Records) -> _Section:
    run_records = records.read_all(job for entry in series for job in entry.jobs())
    return _Section(name, experiment, summarise(series, run_records, experiment.published))


def _matrices(sections: Sequence[_Section]) -> list[str]:
    """A section with a matrix for each experiment; a row that an earlier experiment shows is not shown again."""
    shown: set[Row] = set()
    texts = []
    for section in sections:
        rows = [row for row in section.with_runs if row not in shown]
        if not rows:
            continue
        elsewhere = len(section.with_runs) - len(rows)
        about = f"{section.experiment.about} {_extent(section)}"
        if elsewhere:
            about += f" {elsewhere} of them stand in the tables above."
        texts.append(
            "\n\n".join([f"## {section.experiment.title}", about, f"`polyformer reproduce {section.name}`", ""])
            + to_matrix(rows)
            + "\n"
        )
        shown.update(rows)
    return texts


def _extent(section: _Section) -> str:
    """How many rows have runs, and how many of our models' cells reach the published interval."""
    enough = sum(row.runs >= 3 for row in section.rows)
    ten = sum(row.runs >= 10 for row in section.rows)
    text = (
        f"{len(section.with_runs)} of {len(section.rows)} rows have runs, {enough} at least three and {ten} at least "
        f"ten."
    )
    compared = [row for row in section.with_runs if row.model in _OURS and row.published is not None]
    if compared:
        reached = sum(standing(row) != "below" for row in compared)
        text += f" Of our {len(compared)} cells with a published value, {reached} are inside or above its interval."
    return text


def _rank_section(ranks: Ranks, chart: str) -> str:
    names = ", ".join(ranks.datasets)
    return "\n\n".join(
        [
            "## Ranks over data sets",
            f"Mean ranks over {names}, of the models with at least three runs on each of them. Friedman's test gives "
            f"p = {ranks.p_value:.2g} for ranks as uneven as these if all models were alike. Two models differ by "
            f"Nemenyi's test at 5 % where their bars do not overlap; the bars are {ranks.critical_difference:.1f} "
            f"ranks wide, so {len(ranks.datasets)} data sets tell only large differences apart.",
            f"![Mean ranks of models]({chart})",
            "",
        ]
    )


def _details(section: _Section) -> str:
    """The long table of an experiment, with its notes."""
    extent = f"{len(section.with_runs)} of {len(section.rows)} rows have runs."
    command = f"`polyformer reproduce {section.name}`"
    title, about = section.experiment.title, section.experiment.about
    return "\n\n".join([f"## {title}", f"{about} {extent}", command, to_markdown(section.with_runs)])
