"""What ``polyformer reproduce`` shows: the list of experiments, tables and figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from polyformer.cli.display import Display

if TYPE_CHECKING:
    from polyformer.experiments import Experiment
    from polyformer.experiments.plan import Series
    from polyformer.experiments.records import Records
    from polyformer.experiments.runner import JobResults

__all__ = ["Selection", "draw_figures", "list_experiments", "print_tables"]

Selection: TypeAlias = "list[tuple[str, Experiment, list[Series]]]"
"""Names, experiments, and the series of each that were asked for."""


def list_experiments() -> None:
    """Explain every table and figure."""
    from polyformer.experiments import EXPERIMENTS
    from polyformer.experiments.plan import open_experiment

    display = Display()
    for name in EXPERIMENTS:
        experiment, series = open_experiment(name)
        display.say(f"{name}  {experiment.title}")
        display.say(f"        {experiment.about}")
        display.say(f"        models: {', '.join(dict.fromkeys(entry.label for entry in series))}")
        display.say(f"        data sets: {', '.join(dict.fromkeys(entry.dataset for entry in series))}")
        display.say(f"        {sum(entry.runs for entry in series)} runs")
    display.say("next: polyformer reproduce table5 --datasets chameleon_filtered --models polyformer --runs 3")


def print_tables(selection: Selection, outcome: JobResults, as_csv: bool, json_only: bool) -> None:
    """Print the tables: as Markdown, as one CSV, or as JSON."""
    from polyformer.experiments.summary import summarise, to_csv, to_markdown

    tables = [
        (name, experiment.title, summarise(series, outcome.records, experiment.published))
        for name, experiment, series in selection
    ]
    if json_only:
        Display(json_only=True).result({name: [asdict(row) for row in rows] for name, _, rows in tables})
    elif as_csv:
        print(to_csv((name, rows) for name, _, rows in tables), end="")
    else:
        for name, title, rows in tables:
            print(f"## {title}\n\n`polyformer reproduce {name}`\n\n{to_markdown(rows)}")


def draw_figures(
    selection: Selection, outcome: JobResults, records: Records, out: Path, data_root: Path | None
) -> None:
    """Draw the figures among what was asked for."""
    from polyformer.experiments.figures import FIGURES, draw_figure, write_figure

    display = Display(json_only=True)
    for name, _, series in selection:
        if name not in FIGURES:
            continue
        figure = draw_figure(name, series, outcome.records, records, data_root)
        if figure is None:
            missing = "none of its runs is here with its model"
            display.say(f"{name} is not drawn: {missing}; polyformer reproduce {name} makes them")
        else:
            display.say(f"figure: {write_figure(figure, out, name)}")
