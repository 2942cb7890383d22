from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from polyformer.cli.display import Display
from polyformer.cli.interrupt import graceful_interrupt
from polyformer.cli.train import read_settings
from polyformer.errors import Interrupted, InvalidParameter
from polyformer.progress import format_seconds, parse_seconds

if TYPE_CHECKING:
    from polyformer.experiments.plan import Series
    from polyformer.experiments.records import Records
    from polyformer.experiments.runner import Event, Outcome
    from polyformer.experiments.summary import Row

__all__ = ["reproduce"]


def reproduce(
    names: list[str] = typer.Argument(
        None,
        metavar="[TABLE|FIGURE|PLAN.toml]...",
        help="Tables, figures (--list), or plans of your own.",
    ),
    list_all: bool = typer.Option(False, "--list", help="Explain every table and figure that there is, and stop."),
    datasets: str | None = typer.Option(None, metavar="A,B", help="Run these data sets only."),
    models: str | None = typer.Option(None, metavar="A,B", help="Run these models only."),
    bases: str | None = typer.Option(None, metavar="A,B", help="Run these bases only."),
    runs: int | None = typer.Option(None, min=1, help="Number of runs for each row. [default: as many as the paper]"),
    budget: str | None = typer.Option(
        None, metavar="TIME", help="Stop after this time, e.g. 2h or 45min; finished runs are kept."
    ),
    workers: int | None = typer.Option(
        None, min=1, help="Number of runs at a time, each on one thread. [default: one for each core]"
    ),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Change a setting of every run; these runs have records of their own."
    ),
    results: Path = typer.Option(Path("results"), help="Where the records of finished runs are kept."),
    out: Path = typer.Option(Path("figures"), help="The folder for figures: an SVG and its numbers as JSON each."),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    show: bool = typer.Option(False, "--show", help="Print the tables from existing records; run nothing."),
    page: Path | None = typer.Option(
        None, metavar="FILE.md", help="Write all tables that have records (or those named) as one page; run nothing."
    ),
    as_csv: bool = typer.Option(False, "--csv", help="Print the tables as one CSV; its first column names the table."),
    json_only: bool = typer.Option(False, "--json", help="Print the tables as JSON."),
) -> None:
    """Repeat the experiments of the paper and print our numbers beside the published ones.

    Works through the runs that have no record yet, cheapest first, and prints a table: mean, 95 % interval,
    standard deviation, runs, published value, difference. Progress goes to stderr, tables to stdout. Every finished run
    leaves a small JSON record; stopped by Ctrl-C, the budget or a power cut, the same command goes on where it was.
    Of a figure the image is drawn too; it needs the extra: `pip install 'polyformer[report]'`.

    Examples:

    - `polyformer reproduce --list` — what there is

    - `polyformer reproduce table5 --datasets chameleon_filtered --models polyformer` — minutes

    - `polyformer reproduce table5 --runs 3 --budget 2h` — as far as two hours go, cheapest first

    - `polyformer reproduce table4 table5 --show > results.md` — tables of what has been run so far

    - `polyformer reproduce --page results.md` — all of them, with the commands that made them

    - `polyformer reproduce fig2 --out docs/figures` — runs, then an SVG image and its numbers

    - `polyformer reproduce table2 --bases chebyshev --runs 1 --set batch_size=256 --set epochs=300` — in mini-batches

    - `polyformer reproduce my-plan.toml` — models and data sets of your own choice under the same protocol
    """
    if list_all:
        _list()
        return
    if page is not None:
        _refuse_choice_on_page(
            {"--datasets": datasets, "--models": models, "--bases": bases, "--runs": runs, "--set": settings or None}
        )
        _write_page(page, names, results)
        return
    if not names:
        raise InvalidParameter("'reproduce' must be told what. Got nothing. Try 'polyformer reproduce --list'.")
    from polyformer.experiments.figures import FIGURES
    from polyformer.experiments.plan import open_experiments, select
    from polyformer.experiments.records import Records
    from polyformer.experiments.summary import summarise
    from polyformer.reports import check_extra

    limit = None if budget is None else parse_seconds(budget)
    if any(name in FIGURES for name in names):
        check_extra()
    opened = open_experiments(names)
    restrictions = [_words(*option) for option in (("--datasets", datasets), ("--models", models), ("--bases", bases))]
    changes = read_settings(settings)
    selected_series = [[entry.changed(changes) for entry in select(series, *restrictions)] for _, series in opened]
    everything = list({entry.key: entry for series in selected_series for entry in series}.values())
    records = Records(results)
    for entry in everything:
        entry.check()
    if show:
        outcome, interrupted = _read(everything, records, runs), False
    else:
        outcome, interrupted = _run(Display(json_only=True), everything, records, runs, workers, limit, data_root)
    tables = [
        (name, experiment.title, summarise(series, outcome.records, experiment.published))
        for name, (experiment, _), series in zip(names, opened, selected_series, strict=True)
    ]
    _print(tables, as_csv, json_only)
    for name, series in zip(names, selected_series, strict=True):
        if name in FIGURES:
            _draw(Display(json_only=True), name, series, outcome, records, out, data_root)
    if interrupted:
        raise Interrupted("Stopped; every finished run has its record, and the same command goes on from here.")
    if outcome.failures:
        raise typer.Exit(1)


def _words(option: str, text: str | None) -> list[str]:
    """The names of an option, none if it was left out; an empty one, such as of an unset variable, is not all."""
    if text is None:
        return []
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InvalidParameter(f"'{option}' must name one at least. Got '{text}'. Leave it out to take all.")
    return words


def _list() -> None:
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


def _refuse_choice_on_page(options: dict[str, object]) -> None:
    """A page gives the commands that repeat its tables as they are planned: it has no part of one."""
    for option, value in options.items():
        if value is not None:
            raise InvalidParameter(f"'--page' writes whole tables. Got {option} too. Print a part of them with --show.")


def _write_page(page: Path, names: list[str] | None, results: Path) -> None:
    from polyformer.experiments import EXPERIMENTS
    from polyformer.experiments.page import results_page
    from polyformer.experiments.records import Records
    from polyformer.files import reporting_io_errors, write_whole

    text = results_page(Records(results), names or EXPERIMENTS)
    with reporting_io_errors("the page", page), write_whole(page) as file:
        file.write(text.encode())
    Display().say(f"page: {page}")


def _read(series: list[Series], records: Records, runs: int | None) -> Outcome:
    """The records that there are."""
    from polyformer.experiments.runner import Outcome

    return Outcome(records.read_all(job for entry in series for job in entry.jobs(runs)))


def _run(
    display: Display,
    series: list[Series],
    records: Records,
    runs: int | None,
    workers: int | None,
    budget: float | None,
    data_root: Path | None,
) -> tuple[Outcome, bool]:
    """Run what is missing and tell how far it is; also whether Ctrl-C ended it early."""
    from polyformer.experiments.runner import run_jobs
    from polyformer.machine import num_cores

    count = workers or num_cores()
    jobs = [job for entry in series for job in entry.jobs(runs)]
    with graceful_interrupt(display.say, lambda: "checkpoints stay; runs without one begin anew") as should_stop:
        outcome = run_jobs(
            jobs,
            records,
            workers=count,
            budget=budget,
            data_root=data_root,
            observe=lambda event: _tell(display, event, count),
            should_stop=should_stop,
        )
    if outcome.busy:
        display.say(
            f"left alone: {len(outcome.busy)} runs that another process is still at; run the same command later"
        )
    interrupted = outcome.stopped and should_stop()
    if outcome.stopped and not interrupted:
        display.say("stopped; every finished run has its record, and the same command goes on from here")
    return outcome, interrupted


def _draw(
    display: Display,
    name: str,
    series: list[Series],
    outcome: Outcome,
    records: Records,
    out: Path,
    data_root: Path | None,
) -> None:
    from polyformer.experiments.figures import draw_figure, write_figure

    figure = draw_figure(name, series, outcome.records, records, data_root)
    if figure is None:
        missing = "none of its runs is here with its model"
        display.say(f"{name} is not drawn: {missing}; polyformer reproduce {name} makes them")
    else:
        display.say(f"figure: {write_figure(figure, out, name)}")


def _tell(display: Display, event: Event, workers: int) -> None:
    left = f"about {format_seconds(event.left_seconds)} left"
    if event.job is None:
        display.say(f"{event.done} of {event.total} runs have records; {left} with {workers} at a time")
        return
    series, request = event.job.series, event.job.request
    what = f"{series.label} on {series.dataset}, split {request.split}, seed {request.seed}"
    if event.record is None:
        display.say(f"failed, and its other runs with it: {what}: {event.failure}")
        return
    result = event.record["result"]
    score = "no test score" if result["test"] is None else f"{result['metric']} {result['test']:.4f}"
    display.say(f"[{event.done}/{event.total}] {what}: {score} in {format_seconds(result['seconds'])}; {left}")


def _print(tables: list[tuple[str, str, list[Row]]], as_csv: bool, json_only: bool) -> None:
    from polyformer.experiments.summary import to_csv, to_markdown

    if json_only:
        Display(json_only=True).result({name: [asdict(row) for row in rows] for name, _, rows in tables})
    elif as_csv:
        print(to_csv((name, rows) for name, _, rows in tables), end="")
    else:
        for name, title, rows in tables:
            print(f"## {title}\n\n`polyformer reproduce {name}`\n\n{to_markdown(rows)}")
