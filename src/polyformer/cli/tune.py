from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyformer.cli.cluster_options import Place, RayAddress, on_ray
from polyformer.cli.display import Display
from polyformer.cli.interrupt import graceful_interrupt
from polyformer.cli.options import Basis, DataRoot, SelfLoops, dataclass_options, options_from
from polyformer.cli.train import read_settings
from polyformer.durations import parse_seconds
from polyformer.errors import Interrupted, InvalidParameter, OutOfResources
from polyformer.runs.options import RunOptions

if TYPE_CHECKING:
    from polyformer.runs.request import RunRequest
    from polyformer.tuning.study import Best

__all__ = ["tune"]


@dataclass(frozen=True)
class TuneOptions:
    """Options of `polyformer tune` beside those that it shares with `train`."""

    data: Annotated[str, typer.Argument(metavar="DATASET|PATH", help="A data set (`polyformer datasets`) or a graph.")]
    basis: Basis = None
    order: Annotated[int | None, typer.Option(help="Fix K instead of searching it.")] = None
    self_loops: SelfLoops = None
    trials: Annotated[
        int, typer.Option(min=1, help="Total number of finished trials, including those of earlier calls.")
    ] = 100
    study: Annotated[
        Path | None,
        typer.Option(
            help="The file of the study; an existing study is continued. [default: tuning/DATA-MODEL-BASIS.journal]"
        ),
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="The preset file that gets the best settings. [default: STUDY.csv]")
    ] = None
    budget: Annotated[str | None, typer.Option(metavar="TIME", help="Stop after this time, e.g. 2h or 45min.")] = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of trials at a time, each on one thread. "
            "[default: one for each core, or for each CPU of a cluster]",
        ),
    ] = None
    engine: Place = "local"
    address: RayAddress = None
    preset: Annotated[str | None, typer.Option(help="Fix the settings of this preset instead of searching them.")] = (
        None
    )
    settings: Annotated[
        list[str],
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Fix a setting instead of searching it; may be given more than once."
        ),
    ] = field(default_factory=list)
    splits: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of splits, from --split on, whose mean score is searched: steadier with few validation nodes.",
        ),
    ] = 1
    seed: Annotated[int, typer.Option(help="Seed for the search and for every training run.")] = 0
    data_root: DataRoot = None
    json_only: Annotated[
        bool, typer.Option("--json", help="Print the best settings as JSON and nothing else on stdout.")
    ] = False


@options_from(RunOptions, "given", only=("model", "protocol", "split"))
@dataclass_options
def tune(given: dict[str, Any], options: TuneOptions) -> None:
    """Search for the settings of a model that suit your data, by validation scores alone.

    The first trials are the default settings and the settings of presets for the data set, in any basis. Then TPE
    selects among the values that `polyformer models NAME` lists (the paper's values for the paper's models) and among
    batch sizes; a trial that falls behind the median is given up. The study file keeps every trial: the same command
    continues where it stopped, with more trials if --trials is larger. The best settings become a preset file.

    Examples:

    - `polyformer tune minefield --trials 20 --set epochs=50`

    - `polyformer tune citeseer --basis bernstein --budget 1h`, then
      `polyformer train citeseer --basis bernstein --preset tuning/citeseer-polyformer-bernstein.csv`

    - `polyformer tune chameleon_filtered --basis optimal --splits 3` — chameleon_filtered has few validation nodes

    - `polyformer tune my_graph/ --model gprgnn --trials 200 --study gprgnn.journal`

    - `polyformer tune /shared/my_graph --engine ray --address auto --study /shared/my_graph.journal`
    """
    display, spread = Display(options.json_only), on_ray(options.engine, options.address)
    seconds = None if options.budget is None else parse_seconds(options.budget)
    request = _request(given, options)
    journal = options.study if options.study is not None else _journal(request.data, request.model, options.basis)
    preset_file = _preset_file(options.out, journal)
    searched, request = _open_data(display, request, options.data, options.splits)
    limits = {"trials": options.trials, "workers": options.workers, "budget": seconds}
    best, interrupted = _search(
        display, request, searched, journal, {**limits, "ray": spread, "address": options.address}
    )
    _conclude(display, request, searched, best, interrupted, preset_file)
    display.say(f"next: polyformer train {options.data} --model {request.model} --preset {preset_file}")
    display.result({**asdict(best), "study": str(journal), "preset": str(preset_file)})
    if best.stopped and interrupted:
        raise Interrupted("The search was stopped; the same command goes on from here.")


def _request(given: dict[str, Any], options: TuneOptions) -> RunRequest:
    """The run that every trial repeats with other settings."""
    from polyformer.runs.places import place_of_data, place_of_preset
    from polyformer.runs.request import RunRequest

    return RunRequest(
        **given,
        data=place_of_data(options.data),
        data_root=None if options.data_root is None else str(options.data_root.absolute()),
        seed=options.seed,
        preset=None if options.preset is None else place_of_preset(options.preset),
        settings=read_settings(options.settings, options.basis, options.order, options.self_loops),
    )


@dataclass(frozen=True)
class _Searched:
    """What is searched, and by which validation nodes."""

    space: dict[str, Any]
    metric: str
    num_val: int
    splits: int


def _preset_file(out: Path | None, journal: Path) -> Path:
    """Where the best settings will be written, which must be possible."""
    from polyformer.presets import check_writable

    preset_file = out if out is not None else journal.with_suffix(".csv")
    if preset_file == journal:
        raise InvalidParameter(f"The study '{journal}' and the preset cannot be one file. Let --study end in .journal.")
    check_writable(preset_file)
    return preset_file


def _open_data(display: Display, request: RunRequest, data: str, splits: int) -> tuple[_Searched, RunRequest]:
    """Read the data once, to refuse what cannot be trained, to say what is searched, and to fix the other defaults."""
    from polyformer.runs.data import load_task
    from polyformer.tuning.space import search_space, with_unsearched_defaults

    with display.reporter() as reporter:
        task, nodes = load_task(request, reporter=reporter)
    if request.split + splits > len(task.splits):
        left = len(task.splits) - request.split
        raise InvalidParameter(
            f"'splits' must be at most {left}: '{data}' has no more from {request.split} on. Got {splits}."
        )
    space = search_space(request, len(nodes.train), task.graph.num_features)
    by = f"{task.metric} on {len(nodes.val):,} validation nodes"
    display.say(f"searching {', '.join(space)} of {request.model} on {task.name}, by {by}")
    fixed = with_unsearched_defaults(request, space, len(nodes.train))
    return _Searched(space, task.metric, len(nodes.val), splits), fixed


def _search(
    display: Display, request: RunRequest, searched: _Searched, journal: Path, options: dict[str, Any]
) -> tuple[Best, bool]:
    """The best settings, and whether Ctrl-C ended the search early."""
    from polyformer.metrics import METRICS
    from polyformer.tuning.study import tune as search

    larger = METRICS[searched.metric].larger_is_better
    with (
        graceful_interrupt(display.say, lambda: "what is under way is tried again next time") as interrupted,
        display.reporter(should_stop=interrupted) as reporter,
    ):
        options = options | {"splits": searched.splits, "larger_is_better": larger}
        try:
            best = search(request, searched.space, journal, reporter=reporter, **options)
        except OutOfResources as error:
            if interrupted():
                raise Interrupted("The search was stopped before its first trial ended.") from error
            raise
    return best, interrupted()


def _conclude(
    display: Display, request: RunRequest, searched: _Searched, best: Best, interrupted: bool, preset_file: Path
) -> None:
    """Write the preset and say how good its settings are."""
    from polyformer.datasets import data_name
    from polyformer.evaluation import FEW_VALIDATION_NODES
    from polyformer.presets import write_preset

    write_preset(preset_file, request.model, data_name(request.data), best.settings)
    splits = searched.splits
    where = f"{searched.num_val:,} validation nodes" + ("" if splits == 1 else f" of each of {splits} splits")
    display.say(f"best of {best.trials} trials: {searched.metric} {best.score:.4f} on {where}")
    if searched.num_val * splits < FEW_VALIDATION_NODES:
        display.say(
            f"warning: so few validation nodes hardly tell good settings from lucky ones; name {FEW_VALIDATION_NODES} "
            f"or more, or search on several splits with --splits"
        )
    display.say("  " + " ".join(f"{name}={value}" for name, value in best.settings.items()))
    if best.stopped and not interrupted:
        display.say("stopped; the same command goes on from here")


def _journal(data: str, model: str, basis: str | None) -> Path:
    name = "-".join(filter(None, [Path(data).name, model, basis]))
    return Path("tuning") / (re.sub(r"[^A-Za-z0-9_.-]+", "-", name) + ".journal")
