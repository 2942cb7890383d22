from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyformer.cli.auto import check_auto_options, stored_race_request, train_auto
from polyformer.cli.cluster_options import Place, RayAddress, on_ray
from polyformer.cli.display import Display
from polyformer.cli.interrupt import StopPreparing, graceful_interrupt, saying_what_stays, what_stays
from polyformer.cli.options import Basis, SelfLoops, Settings, dataclass_options, options_from
from polyformer.cli.train_result import conclude, write_small_report
from polyformer.errors import InvalidParameter
from polyformer.interrupts import is_first_worker
from polyformer.registry import parse_value
from polyformer.reporter import Reporter, Tee
from polyformer.runs.options import RunOptions

if TYPE_CHECKING:
    from polyformer.runs.request import RunRequest

__all__ = ["read_settings", "train"]


@dataclass(frozen=True)
class TrainOptions:
    """Options of `polyformer train` beside those that every run has."""

    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATASET|PATH]",
            help="A data set (`polyformer datasets`) or a graph directory. [default: minefield]",
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With --model auto: the time for all models together. [default: 5m]"),
    ] = None
    basis: Basis = None
    order: Annotated[int | None, typer.Option(help="K: every node gets the tokens g_0, …, g_K. [default: 10]")] = None
    self_loops: SelfLoops = None
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric that selects the epoch and is reported, e.g. balanced_accuracy, macro_f1, roc_auc or "
            "log_loss; result.json holds every fitting metric. [default: the metric of the data set, accuracy or r2]",
        ),
    ] = None
    out: Annotated[Path | None, typer.Option(help="The run directory. [default: a new one under runs/]")] = None
    settings: Settings = field(default_factory=list)
    engine: Place = "local"
    workers: Annotated[
        int | None, typer.Option(help="With --engine ray: number of processes that share each batch. [default: 2]")
    ] = None
    address: RayAddress = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out; --memory, --device and --workers may differ.")
    ] = False
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard events into the run directory.")
    ] = False
    write_report: Annotated[
        bool,
        typer.Option("--report/--no-report", help="Write report.html at the end, if the extra `report` is installed."),
    ] = True
    json_only: Annotated[
        bool, typer.Option("--json", help="Print result.json on stdout and nothing else on stdout.")
    ] = False


@options_from(RunOptions, "request_fields")
@dataclass_options
def train(request_fields: dict[str, Any], options: TrainOptions) -> None:
    """Train a model on a data set or on your own graph.

    Selection is by the best validation score; the test score is read once, at that epoch. Everything goes into the run
    directory: config.json, metrics.jsonl, model.safetensors, result.json. Ctrl-C saves; --resume continues.

    Without any settings, PolyFormer tries a few on validation nodes first, and goes on with the best.

    Examples:

    - `polyformer train` — a generated Minesweeper board, no data needed

    - `polyformer train citeseer --basis monomial --preset paper --split 3`

    - `polyformer train my_graph/ --order 6 --set lr=0.003 --set batch_size=full`

    - `polyformer train my_graph/ --memory 8GiB` — tokens that do not fit go to the run directory and are streamed

    - `polyformer train my_graph/ --tokens tokens/` — tokens that `polyformer tokens` wrote, for many runs

    - `polyformer train my_graph/ --model auto --budget 5m` — a leaderboard of a few models; the best stays as the run

    - `polyformer train --resume --out runs/minefield-polyformer-20240101-120000`

    - `torchrun --nproc-per-node 4 -m polyformer train my_graph/ --tokens tokens/` — four processes share each batch

    - `polyformer train my_graph/ --start-from runs/my-run` — after the graph has changed

    - `polyformer train my_graph/ --tokens tokens/ --engine ray --workers 8 --address auto`
    """
    from polyformer.runs.auto.candidates import AUTO

    display, spread = Display(options.json_only), _on_ray(options.engine, options.address, options.workers)
    request = _request(display, request_fields, options)
    many = os.environ.get("WORLD_SIZE") if os.environ.get("WORLD_SIZE") != "1" else None
    engine = "ray" if spread else None
    check_auto_options(request.model, options.budget, tensorboard=options.tensorboard, engine=engine, workers=many)
    if request.model == AUTO:
        place, result = train_auto(display, request, options.out, options.budget, options.resume)
    else:
        place, result = _train(display, request, options, spread)
    if not is_first_worker():
        return
    conclude(display, result, place)
    display.result(result)
    if options.write_report:
        write_small_report(display, result, place, request.memory)


def _request(display: Display, asked: dict[str, Any], options: TrainOptions) -> RunRequest:
    """What is asked for: a new run, or the run in ``--out``, which is to go on."""
    from polyformer.runs.places import place_of_data, place_of_preset

    if options.data is not None:
        asked["data"] = place_of_data(options.data)
    if "preset" in asked:
        asked["preset"] = place_of_preset(asked["preset"])
    settings = read_settings(options.settings, options.basis, options.order, options.self_loops, options.metric)
    if options.resume:
        return _continued_request(options.out, asked, settings)
    return _new_request(display, asked, settings)


def _new_request(display: Display, asked: dict[str, Any], settings: dict[str, Any]) -> RunRequest:
    """A run that begins, perhaps with the weights of another one."""
    from polyformer.runs.request import RunRequest
    from polyformer.runs.starting import starting_from

    if "start_from" in asked:
        start = Path(asked.pop("start_from"))
        return starting_from(RunRequest(**asked, settings=settings), start, asked.get("model"))
    request = RunRequest(**asked, settings=settings)
    _suggest_preset(display, request)
    return request


def _continued_request(out: Path | None, asked: dict[str, Any], settings: dict[str, Any]) -> RunRequest:
    """The run in ``out``, from where it stopped."""
    from polyformer.runs.auto.state import is_race
    from polyformer.runs.repeating import continued_request
    from polyformer.runs.run import Run

    if "start_from" in asked:
        raise InvalidParameter(
            "'--start-from' is for new runs: '--resume' goes on with its own weights. Leave one out."
        )
    if out is None:
        raise InvalidParameter("'--resume' must come with --out RUN, the run directory to continue. Got none.")
    if is_race(out):
        return stored_race_request(out, asked, settings)
    return continued_request(Run.open(out), asked, settings)


def _train(display: Display, request: RunRequest, options: TrainOptions, spread: bool) -> tuple[Path, dict[str, Any]]:
    """Train here, with the processes of torchrun, or on a cluster; returns the run directory and the result.

    Args:
        spread: whether the workers run on a Ray cluster.
    """
    from polyformer.runs.execution import execute_run
    from polyformer.runs.places import run_directory
    from polyformer.training.torchrun import environment_workers

    with (
        environment_workers(request.device) as group,
        run_directory(options.out, request.data, request.model, group) as place,
        saying_what_stays(place),
        graceful_interrupt(display.say, lambda: what_stays(place)) as should_stop,
        display.reporter(epochs=request.resolve_settings()["epochs"], should_stop=should_stop) as shown,
    ):
        reporter = _with_tensorboard(shown, place) if options.tensorboard else shown
        reporter = StopPreparing(reporter) if group.count == 1 else reporter
        progress: dict[str, Any] = {"resume": options.resume, "reporter": reporter}
        if spread:
            return place, _train_on_ray(request, place, options, progress)
        return place, execute_run(request, place, keep_freed_memory=True, workers=group, **progress)


def _train_on_ray(request: RunRequest, place: Path, options: TrainOptions, progress: dict[str, Any]) -> dict[str, Any]:
    from polyformer.runs.on_ray import execute_on_ray

    with contextlib.redirect_stdout(sys.stderr) if options.json_only else contextlib.nullcontext():  # Ray's own words
        return execute_on_ray(request, place, workers=options.workers or 2, address=options.address, **progress)


def _with_tensorboard(reporter: Reporter, out: Path) -> Reporter:
    from polyformer.training.tensorboard import TensorBoard

    return Tee(reporter, TensorBoard(out / "tensorboard"))


def _on_ray(engine: str, address: str | None, workers: int | None) -> bool:
    otherwise = "Without Ray, start the workers with: torchrun --nproc-per-node N -m polyformer train …"
    spread = on_ray(engine, address, workers, otherwise=otherwise)
    if spread and "WORLD_SIZE" in os.environ:
        raise InvalidParameter("'--engine' must be local under torchrun: Ray starts its own workers. Got 'ray'.")
    return spread


def _suggest_preset(display: Display, request: RunRequest) -> None:
    """Say that there are settings chosen for this data set, unless some were asked for."""
    from polyformer.datasets import data_name
    from polyformer.presets import has_preset

    plain = request.model == "polyformer" and request.preset is None and not request.settings
    if plain and has_preset("fast", data_name(request.data)):
        display.say("default settings; '--preset fast' holds settings chosen for this data set")


def read_settings(
    pairs: list[str],
    basis: str | None = None,
    order: int | None = None,
    self_loops: bool | None = None,
    metric: str | None = None,
) -> dict[str, Any]:
    """The settings asked for by ``--set`` and by options of their own."""
    changed_settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidParameter(f"'--set' must read key=value. Got '{pair}'. Try --set lr=0.001.")
        changed_settings[key.strip()] = parse_value(value.strip())
    options = {"basis": basis, "order": order, "self_loops": self_loops, "metric": metric}
    return changed_settings | {name: value for name, value in options.items() if value is not None}
