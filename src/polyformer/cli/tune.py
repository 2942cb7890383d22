from __future__ import annotations

import re
import time
from dataclasses import asdict
from pathlib import Path

import typer

from polyformer.cli.cluster_options import ADDRESS, PLACE, on_ray
from polyformer.cli.display import Display
from polyformer.cli.interrupt import graceful_interrupt
from polyformer.cli.train import place_of_data, place_of_preset, read_settings
from polyformer.progress import format_seconds, parse_seconds

__all__ = ["tune"]


def tune(
    data: str = typer.Argument(..., metavar="DATASET|PATH", help="A data set (`polyformer datasets`) or a graph."),
    model: str = typer.Option("polyformer", help="Which model; `polyformer models NAME` shows what is searched."),
    basis: str | None = typer.Option(None, help="Basis of the tokens; see `polyformer bases`. [default: chebyshev]"),
    order: int | None = typer.Option(None, help="Fix K instead of searching it."),
    self_loops: bool | None = typer.Option(None, "--self-loops/--no-self-loops", help="Use the operator of A + I."),
    trials: int = typer.Option(100, min=1, help="Total number of finished trials, including those of earlier calls."),
    study: Path | None = typer.Option(
        None, help="The file of the study; an existing study is continued. [default: tuning/DATA-MODEL-BASIS.journal]"
    ),
    out: Path | None = typer.Option(None, help="The preset file that gets the best settings. [default: STUDY.csv]"),
    budget: str | None = typer.Option(None, metavar="TIME", help="Stop after this time, e.g. 2h or 45min."),
    workers: int | None = typer.Option(
        None, min=1, help="Trials at a time, each on one thread. [default: one for each core, or CPU of a cluster]"
    ),
    engine: str = PLACE,
    address: str | None = ADDRESS,
    preset: str | None = typer.Option(None, help="Fix the settings of this preset instead of searching them."),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Fix a setting instead of searching it; may be given more than once."
    ),
    split: int = typer.Option(0, help="Which split of the data set to search on, counted from 0."),
    splits: int = typer.Option(
        1,
        min=1,
        help="Number of splits, from --split on, whose mean score is searched: steadier with few validation nodes.",
    ),
    protocol: str | None = typer.Option(None, help="How splits are drawn; the paper's way by default."),
    seed: int = typer.Option(0, help="Seed for the search and for every training run."),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    json_only: bool = typer.Option(False, "--json", help="Print the best settings as JSON and nothing else on stdout."),
) -> None:
    """Search for the settings of a model that suit your data, by validation scores alone.

    The defaults are tried first, and what presets hold for the data set in any basis. Then TPE chooses among the values
    that `polyformer models NAME` lists (the paper's, for its own models) and among batch sizes; trials that fall behind
    the median are given up. The study file keeps every trial: the same command goes on where it stopped, with more
    trials if --trials is larger. The best settings become a preset file.

    Examples:

    - `polyformer tune minefield --trials 20 --set epochs=50`

    - `polyformer tune citeseer --basis bernstein --budget 1h`, then
      `polyformer train citeseer --basis bernstein --preset tuning/citeseer-polyformer-bernstein.csv`

    - `polyformer tune chameleon_filtered --basis optimal --splits 3` — its validation nodes are few

    - `polyformer tune my_graph/ --model gprgnn --trials 200 --study gprgnn.journal`

    - `polyformer tune /shared/my_graph --engine ray --address auto --study /shared/my_graph.journal`
    """
    from polyformer.datasets import data_name
    from polyformer.errors import Interrupted, InvalidParameter, OutOfResources
    from polyformer.evaluation import FEW_VALIDATION_NODES
    from polyformer.metrics import METRICS
    from polyformer.presets import check_writable, write_preset
    from polyformer.training.run import RunRequest, load_task
    from polyformer.tuning.space import search_space
    from polyformer.tuning.study import Finished
    from polyformer.tuning.study import tune as search

    display, spread = Display(json_only), on_ray(engine, address)
    end = None if budget is None else time.monotonic() + parse_seconds(budget)
    request = RunRequest(
        data=place_of_data(data),
        model=model,
        data_root=None if data_root is None else str(data_root.absolute()),
        protocol=protocol,
        split=split,
        seed=seed,
        preset=None if preset is None else place_of_preset(preset),
        settings=read_settings(settings, basis, order, self_loops),
    )
    journal = study if study is not None else _journal(request.data, model, basis)
    preset_file = out if out is not None else journal.with_suffix(".csv")
    if preset_file == journal:
        raise InvalidParameter(f"The study '{journal}' and the preset cannot be one file. Let --study end in .journal.")
    check_writable(preset_file)
    with display.stages() as loading:
        task, nodes = load_task(request, loading, display.say)
    if split + splits > len(task.splits):
        left = len(task.splits) - split
        raise InvalidParameter(f"'splits' must be at most {left}: '{data}' has no more from {split} on. Got {splits}.")
    space = search_space(request, len(nodes.train), task.graph.num_features)
    basis_of_choice = f"{task.metric} on {len(nodes.val):,} validation nodes"
    display.say(f"searching {', '.join(space)} of {model} on {task.name}, by {basis_of_choice}")
    started, before = time.monotonic(), trials

    def observe(finished: Finished) -> None:
        nonlocal before
        before = min(before, finished.done - 1)
        rate = (time.monotonic() - started) / (finished.done - before)
        score = "given up" if finished.score is None else f"{finished.score:.4f}"
        best = "" if finished.best is None else f", best {finished.best:.4f}"
        left = format_seconds(rate * max(0, trials - finished.done))
        display.say(f"[{finished.done}/{trials}] trial {finished.number}: {score}{best}; about {left} left")

    with graceful_interrupt(display.say, lambda: "what is under way is tried again next time") as interrupted:
        try:
            best = search(
                request,
                space,
                journal,
                trials=trials,
                splits=splits,
                larger_is_better=METRICS[task.metric].larger_is_better,
                workers=workers,
                observe=observe,
                should_stop=lambda: interrupted() or (end is not None and time.monotonic() > end),
                ray=spread,
                address=address,
            )
        except OutOfResources as error:
            if interrupted():
                raise Interrupted("The search was stopped before its first trial ended.") from error
            raise
    write_preset(preset_file, model, data_name(request.data), best.settings)
    where = f"{len(nodes.val):,} validation nodes" + ("" if splits == 1 else f" of each of {splits} splits")
    display.say(f"best of {best.trials} trials: {task.metric} {best.score:.4f} on {where}")
    if len(nodes.val) * splits < FEW_VALIDATION_NODES:
        display.say(
            f"warning: so few validation nodes hardly tell good settings from lucky ones; name {FEW_VALIDATION_NODES} "
            f"or more, or search on several splits with --splits"
        )
    display.say("  " + " ".join(f"{name}={value}" for name, value in best.settings.items()))
    if best.stopped and not interrupted():
        display.say("stopped; the same command goes on from here")
    display.say(f"next: polyformer train {data} --model {model} --preset {preset_file}")
    display.result({**asdict(best), "study": str(journal), "preset": str(preset_file)})
    if best.stopped and interrupted():
        raise Interrupted("The search was stopped; the same command goes on from here.")


def _journal(data: str, model: str, basis: str | None) -> Path:
    name = "-".join(filter(None, [Path(data).name, model, basis]))
    return Path("tuning") / (re.sub(r"[^A-Za-z0-9_.-]+", "-", name) + ".journal")
