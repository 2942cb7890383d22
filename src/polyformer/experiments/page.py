"""One page of all tables: what has been run here, beside what was published, with the commands that repeat it."""

from __future__ import annotations

from collections.abc import Iterable

from polyformer.experiments import EXPERIMENTS, Experiment
from polyformer.experiments.plan import Series, open_experiments
from polyformer.experiments.records import Records
from polyformer.experiments.summary import summarise, to_markdown

__all__ = ["results_page"]

_INTRODUCTION = """\
# Results

Every number of the tables is computed from the records under `results/`: one JSON file for each run, with its
configuration, versions, time and memory. `make results` writes this page from them. Some notes also quote single runs
that were made to explain a difference and have no record. Epochs are chosen on validation scores and the
test score is read once; where a signal is fitted (Tables 2 and 7, Figure 2) all pixels are both, as in the paper. ± is
the 95 % interval of the mean: by the bootstrap as in the paper from five runs on, by Student's t for fewer. Accuracy
and ROC-AUC are in percent. Times are processor times, of the earliest runs wall times. Rows without a run are left out;
a command goes on where the last one stopped. † marks rows with runs whose settings have changed since; the note says
which.
"""


def results_page(records: Records, names: Iterable[str] = EXPERIMENTS) -> str:
    """Markdown with a section for each experiment that has a record."""
    experiment_names = list(names)
    opened = zip(experiment_names, open_experiments(experiment_names), strict=True)
    sections = (_section(name, experiment, series, records) for name, (experiment, series) in opened)
    return "\n".join([_INTRODUCTION, *filter(None, sections)])


def _section(name: str, experiment: Experiment, series: list[Series], records: Records) -> str:
    run_records = records.read_all(job for entry in series for job in entry.jobs())
    rows = summarise(series, run_records, experiment.published)
    with_runs = [row for row in rows if row.runs]
    if not with_runs:
        return ""
    extent = f"{len(with_runs)} of {len(rows)} rows have runs."
    command = f"`polyformer reproduce {name}`"
    return "\n\n".join([f"## {experiment.title}", f"{experiment.about} {extent}", command, to_markdown(with_runs)])
