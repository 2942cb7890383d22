from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyformer.cli.display import Display
from polyformer.cli.interrupt import graceful_interrupt
from polyformer.cli.options import DataRoot, dataclass_options
from polyformer.cli.reproduce_output import Selection, draw_figures, list_experiments, print_tables
from polyformer.cli.train import read_settings
from polyformer.durations import parse_seconds
from polyformer.errors import Interrupted, InvalidParameter

if TYPE_CHECKING:
    from polyformer.experiments.plan import Series
    from polyformer.experiments.records import Records
    from polyformer.experiments.runner import JobResults

__all__ = ["reproduce"]


@dataclass(frozen=True)
class ReproduceOptions:
    """Options of `polyformer reproduce`."""

    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE|FIGURE|PLAN.toml]...", help="Tables, figures (--list), or plans of your own."),
    ] = None
    list_all: Annotated[bool, typer.Option("--list", help="Explain every table and figure, and stop.")] = False
    datasets: Annotated[str | None, typer.Option(metavar="A,B", help="Run these data sets only.")] = None
    models: Annotated[str | None, typer.Option(metavar="A,B", help="Run these models only.")] = None
    bases: Annotated[str | None, typer.Option(metavar="A,B", help="Run these bases only.")] = None
    runs: Annotated[
        int | None, typer.Option(min=1, help="Number of runs for each row. [default: as many as the paper]")
    ] = None
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop after this time, e.g. 2h or 45min; finished runs are kept.")
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs at a time, each on one thread. [default: one for each core]"),
    ] = None
    settings: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting of every run; runs with changed settings have records of their own.",
        ),
    ] = field(default_factory=list)
    results: Annotated[Path, typer.Option(help="Folder that keeps the records of finished runs.")] = Path("results")
    out: Annotated[
        Path, typer.Option(help="Folder for figures: each is an SVG image and a JSON file of its numbers.")
    ] = Path("figures")
    data_root: DataRoot = None
    show: Annotated[bool, typer.Option("--show", help="Print the tables from existing records; run nothing.")] = False
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md", help="Write all tables that have records (or those named) as one page; run nothing."
        ),
    ] = None
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print the tables as one CSV; the first column names the table.")
    ] = False
    json_only: Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")] = False

    @property
    def restrictions(self) -> dict[str, str | None]:
        """The options that name a part of a table, and what they name."""
        return {"--datasets": self.datasets, "--models": self.models, "--bases": self.bases}


@dataclass_options
def reproduce(options: ReproduceOptions) -> None:
    """Repeat the experiments of the paper and print our numbers beside the published ones.

    The command does the runs that have no record yet, cheapest first, and prints a table: mean, 95 % interval, standard
    deviation, runs, published value, difference. Progress goes to stderr, tables to stdout. Every finished run leaves a
    record, a line of JSON; after Ctrl-C, the end of the budget or a power cut, the same command goes on from there.
    A figure also becomes an image, which needs the extra: `pip install 'polyformer[report]'`.

    Examples:

    - `polyformer reproduce --list` — all tables and figures

    - `polyformer reproduce table5 --datasets chameleon_filtered --models polyformer` — minutes

    - `polyformer reproduce table5 --runs 3 --budget 2h` — as many runs as two hours allow, cheapest first

    - `polyformer reproduce table4 table5 --show > results.md` — tables of the runs that have records

    - `polyformer reproduce --page results.md` — all tables, with the commands that made them

    - `polyformer reproduce fig2 --out docs/figures` — runs, then an SVG image and its numbers

    - `polyformer reproduce table2 --bases chebyshev --runs 1 --set batch_size=256 --set epochs=300` — in mini-batches

    - `polyformer reproduce my-plan.toml` — models and data sets of your own choice under the same protocol
    """
    if options.list_all:
        list_experiments()
        return
    if options.page is not None:
        _write_page(options.page, options)
        return
    if not options.names:
        raise InvalidParameter("'reproduce' must be told what. Got nothing. Try 'polyformer reproduce --list'.")
    from polyformer.experiments.records import Records

    budget = None if options.budget is None else parse_seconds(options.budget)
    selection = _select(options.names, options)
    everything = list({entry.key: entry for _, _, series in selection for entry in series}.values())
    records = Records(options.results)
    for entry in everything:
        entry.check()
    if options.show:
        outcome, interrupted = _read(everything, records, options.runs), False
    else:
        outcome, interrupted = _run(everything, records, options, budget)
    print_tables(selection, outcome, options.as_csv, options.json_only)
    draw_figures(selection, outcome, records, options.out, options.data_root)
    if interrupted:
        raise Interrupted("Stopped; every finished run has its record, and the same command goes on from here.")
    if outcome.failures:
        raise typer.Exit(1)


def _select(names: list[str], options: ReproduceOptions) -> Selection:
    """What was asked for; names that nothing has, and figures without what draws them, are refused."""
    from polyformer.experiments.figures import FIGURES
    from polyformer.experiments.plan import open_experiments, select
    from polyformer.reports import check_extra

    if any(name in FIGURES for name in names):
        check_extra()
    changes = read_settings(options.settings)
    opened = open_experiments(names)
    words = [_words(option, text) for option, text in options.restrictions.items()]
    return [
        (name, experiment, [entry.changed(changes) for entry in select(series, *words)])
        for name, (experiment, series) in zip(names, opened, strict=True)
    ]


def _words(option: str, text: str | None) -> list[str]:
    """The names that an option lists; none if the option was left out. An empty text, as from an unset variable of the
    shell, is refused, because it does not mean all names."""
    if text is None:
        return []
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InvalidParameter(f"'{option}' must name one at least. Got '{text}'. Leave it out to take all.")
    return words


def _write_page(page: Path, options: ReproduceOptions) -> None:
    """Write the tables; a part of a table is refused, as the page gives the commands that repeat whole tables."""
    from polyformer.experiments import EXPERIMENTS
    from polyformer.experiments.page import results_pages
    from polyformer.experiments.records import Records
    from polyformer.files import reporting_io_errors, write_whole

    for option, value in {**options.restrictions, "--runs": options.runs, "--set": options.settings or None}.items():
        if value is not None:
            raise InvalidParameter(f"'--page' writes whole tables. Got {option} too. Print a part of them with --show.")
    pages = results_pages(Records(options.results), options.names or EXPERIMENTS, page.stem)
    texts = {page: pages.page, page.with_name(f"{page.stem}-details.md"): pages.details}
    if pages.ranks is not None:
        texts[page.with_name(f"{page.stem}-ranks.svg")] = pages.ranks
    for path, text in texts.items():
        with reporting_io_errors("the page", path), write_whole(path) as file:
            file.write(text.encode())
        Display().say(f"page: {path}")


def _read(series: list[Series], records: Records, runs: int | None) -> JobResults:
    """The existing records of the runs."""
    from polyformer.experiments.runner import JobResults

    return JobResults(records.read_all(job for entry in series for job in entry.jobs(runs)))


def _run(
    series: list[Series], records: Records, options: ReproduceOptions, budget: float | None
) -> tuple[JobResults, bool]:
    """Do the missing runs and show progress; the second value says whether Ctrl-C ended them early."""
    from polyformer.experiments.runner import run_jobs
    from polyformer.machine import num_cores

    display = Display(json_only=True)
    jobs = [job for entry in series for job in entry.jobs(options.runs)]
    places: dict[str, Any] = {"workers": options.workers or num_cores(), "data_root": options.data_root}
    with (
        graceful_interrupt(display.say, lambda: "checkpoints stay; runs without one begin anew") as should_stop,
        display.reporter(should_stop=should_stop) as reporter,
    ):
        outcome = run_jobs(jobs, records, budget=budget, reporter=reporter, **places)
    if outcome.busy:
        display.say(
            f"left alone: {len(outcome.busy)} runs that another process is still at; run the same command later"
        )
    interrupted = outcome.stopped and should_stop()
    if outcome.stopped and not interrupted:
        display.say("stopped; every finished run has its record, and the same command goes on from here")
    return outcome, interrupted
