from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from polyformer.cli.cluster_options import ADDRESS, PLACE, on_ray
from polyformer.cli.display import Display
from polyformer.cli.interrupt import graceful_interrupt, saying_what_stays, stopping, what_stays
from polyformer.errors import InvalidParameter, PolyformerError
from polyformer.interrupts import is_first_worker
from polyformer.registry import parse_value

if TYPE_CHECKING:
    from polyformer.training.distributed import Workers
    from polyformer.training.loop import Observer
    from polyformer.training.run import RunRequest

__all__ = ["place_of_data", "place_of_preset", "read_settings", "train"]

_RUNS = Path("runs")

_CHANGEABLE = ("memory", "device", "data_root")
"""What a run that goes on may be given anew: the result does not depend on it."""


def train(
    data: str | None = typer.Argument(
        None,
        metavar="[DATASET|PATH]",
        help="A data set (`polyformer datasets`) or a graph directory; minefield if left out.",
    ),
    model: str | None = typer.Option(None, help="Which model; see `polyformer models`. [default: polyformer]"),
    basis: str | None = typer.Option(None, help="Basis of the tokens; see `polyformer bases`. [default: chebyshev]"),
    order: int | None = typer.Option(None, help="K: tokens g_0, …, g_K of every node. [default: 10]"),
    self_loops: bool | None = typer.Option(None, "--self-loops/--no-self-loops", help="Use the operator of A + I."),
    preset: str | None = typer.Option(
        None,
        help="Settings by name: `fast` holds ours that need a minute or two, `paper` the published ones, `tuned` those "
        "that tuning found for what has none published; or a `.csv` file, as `polyformer tune` writes it.",
    ),
    metric: str | None = typer.Option(
        None,
        help="Select the epoch and report by this metric, e.g. balanced_accuracy, macro_f1, roc_auc, log_loss or mae; "
        "every fitting metric is in result.json. [default: the data set's, accuracy or r2]",
    ),
    split: int | None = typer.Option(None, help="Which split of the data set, counted from 0. [default: 0]"),
    protocol: str | None = typer.Option(
        None, help="How splits are drawn; the paper's way for that data set by default."
    ),
    seed: int | None = typer.Option(None, help="Seed for parameters, batches and dropout. [default: 0]"),
    out: Path | None = typer.Option(None, help="The run directory. [default: a new one under runs/]"),
    device: str | None = typer.Option(None, help="auto, cpu or cuda. [default: auto]"),
    tokens: Path | None = typer.Option(
        None, help="Train from this token directory (`polyformer tokens`); its basis and order are the default then."
    ),
    memory: str | None = typer.Option(
        None,
        help="Use at most this memory, e.g. 8GiB; tokens that need more stay on disk. [default: 80 % of free memory]",
    ),
    settings: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Any setting of `polyformer models NAME`; may be given more than once."
    ),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    engine: str = PLACE,
    workers: int | None = typer.Option(None, help="With --engine ray: processes that share each batch. [default: 2]"),
    address: str | None = ADDRESS,
    resume: bool = typer.Option(
        False, "--resume", help="Continue the run in --out; --memory, --device and --workers may differ."
    ),
    tensorboard: bool = typer.Option(
        False, "--tensorboard", help="Also write TensorBoard events into the run directory."
    ),
    write_report: bool = typer.Option(
        True, "--report/--no-report", help="Write report.html in the end, if the extra `report` is installed."
    ),
    json_only: bool = typer.Option(False, "--json", help="Print result.json on stdout and nothing else there."),
) -> None:
    """Train a model on a data set or on your own graph.

    Selection is by the best validation score; the test score is read once, at that epoch. Everything goes into the run
    directory: config.json, metrics.jsonl, model.safetensors, result.json. Ctrl-C saves; --resume continues.

    Examples:

    - `polyformer train` — a generated Minesweeper board, no data needed

    - `polyformer train citeseer --basis monomial --preset paper --split 3`

    - `polyformer train my_graph/ --order 6 --set lr=0.003 --set batch_size=full`

    - `polyformer train my_graph/ --memory 8GiB` — tokens that do not fit go to the run directory and are streamed

    - `polyformer train my_graph/ --tokens tokens/` — tokens that `polyformer tokens` wrote, for many runs

    - `polyformer train --resume --out runs/minefield-polyformer-20240101-120000`

    - `torchrun --nproc-per-node 4 -m polyformer train my_graph/ --tokens tokens/` — four processes share each batch

    - `polyformer train my_graph/ --tokens tokens/ --engine ray --workers 8 --address auto`
    """
    from polyformer.machine import parse_bytes
    from polyformer.training.distributed import environment_workers
    from polyformer.training.run import RunRequest, execute_run

    display, spread = Display(json_only), _on_ray(engine, address, workers)
    given: dict[str, Any] = {
        "data": None if data is None else place_of_data(data),
        "model": model,
        "data_root": None if data_root is None else str(data_root.resolve()),
        "protocol": protocol,
        "split": split,
        "seed": seed,
        "device": device,
        "preset": None if preset is None else place_of_preset(preset),
        "tokens": None if tokens is None else str(tokens.resolve()),
        "memory": None if memory is None else parse_bytes(memory),
    }
    request_fields = {name: value for name, value in given.items() if value is not None}
    changed_settings = read_settings(settings, basis, order, self_loops)
    if metric is not None:
        changed_settings["metric"] = metric
    if resume:
        if out is None:
            raise InvalidParameter("'--resume' must come with --out RUN, the run directory to continue. Got none.")
        request = _stored_request(out, request_fields, changed_settings)
    else:
        request = RunRequest(**request_fields, settings=changed_settings)
        _suggest_preset(display, request)
    with (
        environment_workers() as group,
        _run_directory(out, request, group) as place,
        saying_what_stays(place),
        graceful_interrupt(display.say, lambda: what_stays(place)) as should_stop,
        display.stages() as loading,
        display.share("tokens") as progress,
        display.epochs(request.resolve_settings()["epochs"]) as epochs,
    ):
        announce: Callable[..., None] = partial(_announce, display)
        if group.count == 1:
            loading, progress, announce = (
                stopping(callback, should_stop) for callback in (loading, progress, announce)
            )
        options: dict[str, Any] = {
            "resume": resume,
            "loading": loading,
            "report": display.say,
            "announce": announce,
            "observers": [epochs, *_tensorboard(tensorboard, place)],
            "should_stop": should_stop,
        }
        if spread:
            from polyformer.training.on_ray import execute_on_ray

            with contextlib.redirect_stdout(sys.stderr) if json_only else contextlib.nullcontext():  # Ray's own words
                result = execute_on_ray(request, place, workers=workers or 2, address=address, **options)
        else:
            result = execute_run(request, place, progress=progress, workers=group, keep_freed_memory=True, **options)
    if not is_first_worker():
        return
    _conclude(display, result, place)
    display.result(result)
    if write_report:
        _report(display, result, place, request.memory)


def _on_ray(engine: str, address: str | None, workers: int | None) -> bool:
    otherwise = "Without Ray, start the workers with: torchrun --nproc-per-node N -m polyformer train …"
    spread = on_ray(engine, address, workers, otherwise=otherwise)
    if spread and "WORLD_SIZE" in os.environ:
        raise InvalidParameter("'--engine' must be local under torchrun: Ray starts its own workers. Got 'ray'.")
    return spread


@contextlib.contextmanager
def _run_directory(out: Path | None, request: RunRequest, group: Workers) -> Iterator[Path]:
    """``--out``, or a new directory that the first worker takes for all; empty in the end, it goes again."""
    if out is not None:
        yield out
        return
    fresh = not _RUNS.exists()
    path = group.first(lambda: _take_new_directory(request.data, request.model))
    try:
        yield path
    finally:
        for folder in (path, _RUNS) if fresh else (path,):
            with contextlib.suppress(OSError):  # not empty, or gone already
                if group.rank == 0:
                    folder.rmdir()


def _tensorboard(wanted: bool, out: Path) -> list[Observer]:
    if not wanted:
        return []
    from polyformer.training.tensorboard import tensorboard_observer

    return [tensorboard_observer(out / "tensorboard")]


def _report(display: Display, result: dict[str, Any], out: Path, memory: int | None) -> None:
    """Write the report if it takes seconds; the run counts whether or not it succeeds."""
    from polyformer.cli.report import show_report
    from polyformer.reports import check_extra
    from polyformer.reports.findings import is_small
    from polyformer.training.run_directory import RunDirectory

    task = RunDirectory.open(out).config["task"]
    try:
        check_extra()
        if is_small(task["nodes"], task["edges"]) and result["preparation_seconds"] <= 60:
            show_report(display, out, out / "report.html", memory=memory)
        else:
            display.say(f"report: polyformer report {out}   # it takes a while here")
    except PolyformerError as error:
        display.say(f"report: not written. {error}")


def _suggest_preset(display: Display, request: RunRequest) -> None:
    """Say that there are settings chosen for this data set, unless some were asked for."""
    from polyformer.datasets import data_name
    from polyformer.presets import has_preset

    plain = request.model == "polyformer" and request.preset is None and not request.settings
    if plain and has_preset("fast", data_name(request.data)):
        display.say("default settings; '--preset fast' holds settings chosen for this data set")


def place_of_preset(preset: str) -> str:
    """A file as an absolute path, so that the run can go on from anywhere; a name as it is."""
    from polyformer.presets import is_preset_file

    return str(Path(preset).resolve()) if is_preset_file(preset) else preset


def place_of_data(data: str) -> str:
    """A path as an absolute one, so that the run finds its data from anywhere; a data set's name as it is."""
    from polyformer.datasets import DATASETS, data_name

    return data if data_name(data) in DATASETS or not Path(data).exists() else str(Path(data).resolve())


def read_settings(
    pairs: list[str], basis: str | None = None, order: int | None = None, self_loops: bool | None = None
) -> dict[str, Any]:
    """The settings asked for by ``--set`` and by options of their own."""
    changed_settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidParameter(f"'--set' must read key=value. Got '{pair}'. Try --set lr=0.001.")
        changed_settings[key.strip()] = parse_value(value.strip())
    options = {"basis": basis, "order": order, "self_loops": self_loops}
    return changed_settings | {name: value for name, value in options.items() if value is not None}


def _stored_request(out: Path, asked: dict[str, Any], chosen: dict[str, Any]) -> RunRequest:
    """The request of the run that is to go on; what its result depends on must not differ from it."""
    from polyformer.training.run import RunRequest
    from polyformer.training.run_directory import RunDirectory

    config = RunDirectory.open(out).config
    changes = {name: asked[name] for name in _CHANGEABLE if name in asked}
    for name, value in {**asked, **chosen}.items():
        if name in changes:
            continue
        before = config["settings"].get(name, "nothing") if name in chosen else config[name]
        if value != before:
            raise InvalidParameter(
                f"The run '{out}' was started with {name}={before}. Got {value}. Leave it out or start a new run."
            )
    return replace(RunRequest.of_run(config), **changes)


def _take_new_directory(data: str, model: str) -> Path:
    """Make a directory that no other run has, even one that started in the same second."""
    from polyformer.files import reporting_io_errors

    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(data).name.strip("./")) or "graph"
    base = _RUNS / f"{name}-{model}-{time.strftime('%Y%m%d-%H%M%S')}"
    others = (base.with_name(f"{base.name}-{count}") for count in itertools.count(2))
    with reporting_io_errors("the run", base):
        return next(path for path in itertools.chain([base], others) if _is_made(path))


def _is_made(path: Path) -> bool:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _announce(display: Display, facts: dict[str, Any]) -> None:
    from polyformer.training.request import data_sentence

    display.say(data_sentence(facts))
    display.say(
        f"split {facts['split']} by protocol '{facts['protocol']}': {facts['train']:,} train, {facts['val']:,} val, "
        f"{facts['test']:,} test; selected by {facts['metric']} on validation"
    )


def _judgement(result: dict[str, Any]) -> Iterator[str]:
    """What tells whether the score is any good, line by line; results of earlier versions say nothing of it."""
    if result.get("baseline") is not None:
        yield f"guessing: test {result['baseline']:.4f}"
    if result.get("test_interval") is not None:
        yield "95 % over resampled test nodes: {:.4f} to {:.4f}".format(*result["test_interval"])
    others = {name: score for name, score in result.get("scores", {}).items() if score is not None}
    others.pop(result["metric"], None)
    if others:
        yield "other scores: " + ", ".join(f"{name} {score:.4f}" for name, score in others.items())
    if result.get("threshold") is not None:
        yield (
            f"the classes are unequal: the second is predicted from a probability of {result['threshold']:.4f} on, "
            f"chosen on validation"
        )
    for warning in result.get("warnings", []):
        yield f"warning: {warning}"


def _conclude(display: Display, result: dict[str, Any], out: Path) -> None:
    scores = [
        f"{name} {result[key]:.4f}"
        for name, key in (("test", "test"), ("validation", "val"))
        if result[key] is not None
    ]
    when = f"epoch {result['best_epoch']} of {result['epochs']}, {result['seconds']:.1f} s"
    display.say(f"{result['metric']}: {', '.join(scores)} at {when}")
    for line in _judgement(result):
        display.say(line)
    display.say(f"run directory: {out} (the same in {out / 'result.json'})")
    from polyformer.datasets import DATASETS, data_name
    from polyformer.models import MODELS

    display.say("next:")
    display.say(f"  polyformer predict {out} --out predictions.parquet   # every node's class and probabilities")
    if any(hasattr(MODELS[result["model"]], name) for name in ("filter_coefficients", "frequency_response")):
        display.say(f"  polyformer filters {out} --out filters.parquet   # the filters that it learned")
    if data_name(result["data"]) in DATASETS:
        display.say("  polyformer datasets   # what else there is to train on")
        display.say("  polyformer train PATH   # your own graph")
