"""Training from Python: data and settings in, a run out, as ``polyformer train`` leaves it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polyformer.durations import parse_seconds
from polyformer.errors import InvalidParameter
from polyformer.files import array_digest
from polyformer.graph import Graph
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.auto.candidates import AUTO
from polyformer.runs.auto.search import execute_auto
from polyformer.runs.execution import execute_run
from polyformer.runs.options import absolute_path
from polyformer.runs.places import place_of_data, place_of_preset, run_directory
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run
from polyformer.runs.starting import starting_from
from polyformer.splits import Split, uniform_split
from polyformer.tasks import Task, check_labels

__all__ = ["train"]

_DRAWN_SPLITS = 10


def train(
    data: str | Path | Graph | Task = "minefield",
    model: str = "polyformer",
    out: str | Path | None = None,
    *,
    labels: Any = None,
    split: int | Split = 0,
    protocol: str | None = None,
    seed: int = 0,
    device: str = "auto",
    preset: str | None = None,
    tokens: str | Path | None = None,
    memory: int | None = None,
    data_root: str | Path | None = None,
    start_from: str | Path | None = None,
    reporter: Reporter = SILENT,
    budget: str | float | None = None,
    **settings: Any,
) -> Run:
    """Train a model and return its run, the directory that ``polyformer train`` would have written.

    A graph or a task that is given as an object is saved beside the run, in ``data-<hash>``, so that the run can be
    opened, applied and continued later like any other; runs on the same object share that directory.

    Args:
        data: a data set's name, a path of a graph directory or of tables, a :class:`Task`, or a :class:`Graph`.
        model: name of the model, see ``polyformer models``; ``"auto"`` tries several and keeps the best.
        out: the run directory, which must not exist; a new one under ``runs/`` by default.
        labels: (N,) classes 0, 1, … with -1 for unlabelled, or real values with NaN for unlabelled; with a graph alone.
        split: number of the split; or, with a graph, a :class:`Split` of your own. By default labelled nodes are drawn,
            60 % to train on, 20 % to select by and 20 % to test on.
        protocol: how the splits of a data set are drawn; by default the paper's.
        seed: seed for parameters, batches and dropout.
        preset: settings by name, ``"fast"``, ``"paper"`` or ``"tuned"``, or a ``.csv`` file.
        tokens: a token directory to train from.
        memory: bytes that may be used; 80 % of what is free by default.
        data_root: where data files are looked for first.
        start_from: a run whose model, settings, scaling of features and weights are the first; ``model`` must be its.
        reporter: hears how far the work is, and can end it.
        budget: time for all models together of ``"auto"``, in seconds or as ``"5m"``, which is the default.
        settings: any setting that ``polyformer models NAME`` lists, such as ``order=6`` or ``epochs=100``.

    Example:
        >>> import tempfile, numpy as np
        >>> ring = Graph(np.stack([np.arange(60), (np.arange(60) + 1) % 60]), features=np.eye(60)[:, :4])
        >>> place = f"{tempfile.mkdtemp()}/run"
        >>> run = train(ring, out=place, labels=np.arange(60) // 30, order=2, hidden_channels=8, epochs=2)
        >>> run.predict().shape
        (60, 2)
    """
    task = _named_or_task(data, labels, split)
    own: dict[str, Any] = {"protocol": protocol, "seed": seed, "device": device, "memory": memory}
    own |= _places(data_root, preset, tokens)
    number = 0 if isinstance(split, Split) else split
    request = _request(task, RunRequest(model=model, split=number, settings=settings, **own), start_from)
    with run_directory(None if out is None else Path(out), request.data, model) as place:
        if isinstance(task, Task):
            return _train_on(task, request, place, reporter, budget)
        return _execute(request, place, reporter, budget)


def _named_or_task(data: str | Path | Graph | Task, labels: Any, split: int | Split) -> str | Task:
    """The name or path of the data, or a task that was given or is made from a graph and labels."""
    if isinstance(data, Graph):
        return _task(data, labels, split)
    if labels is not None:
        raise InvalidParameter(f"'labels' go with a Graph: {type(data).__name__} brings its own. Leave them out.")
    if isinstance(split, Split):
        raise InvalidParameter("'split' must be the number of a split of the data. Got a Split. It goes with a Graph.")
    return data if isinstance(data, Task) else place_of_data(str(data))


def _places(data_root: str | Path | None, preset: str | None, tokens: str | Path | None) -> dict[str, str]:
    """The arguments that were given, by name, each as a path that a run finds again from any folder."""
    places = {} if preset is None else {"preset": place_of_preset(preset)}
    folders = {"data_root": data_root, "tokens": tokens}
    return places | {name: absolute_path(str(path)) for name, path in folders.items() if path is not None}


def _request(task: str | Task, request: RunRequest, start_from: str | Path | None) -> RunRequest:
    """The request with its data, and with what it takes over from the run that it starts from."""
    if isinstance(task, Task):
        # Features of data sets are used as they were published.
        published = {"scale_features": "none"} if task.graph.published else {}
        request = replace(request, data=task.name, settings=published | (request.settings or {}))
    else:
        request = replace(request, data=task)
    return request if start_from is None else starting_from(request, Path(start_from), request.model)


def _execute(request: RunRequest, place: Path, reporter: Reporter, budget: str | float | None) -> Run:
    """Train one model, or let several race."""
    if request.model == AUTO:
        seconds = parse_seconds(budget) if isinstance(budget, str) else budget
        execute_auto(request, place, budget=seconds, reporter=reporter)
    elif budget is not None:
        raise InvalidParameter(f"'budget' must come with the model '{AUTO}'. Got the model '{request.model}'.")
    else:
        execute_run(request, place, reporter=reporter)
    return Run.open(place)


def _task(graph: Graph, labels: Any, split: int | Split) -> Task:
    """A graph with its labels, and splits that are given or drawn."""
    if labels is None:
        raise InvalidParameter("'labels' must be given with a Graph: one for every node, -1 or NaN where unknown.")
    checked = check_labels(labels, graph.num_nodes)
    if len(graph.removed):  # removed nodes are in no split
        checked = checked.copy()
        checked[graph.removed] = np.nan if checked.dtype.kind == "f" else -1
    if isinstance(split, Split):
        return Task("graph", graph, checked, [split], "given")
    splits = [uniform_split(checked, number) for number in range(max(_DRAWN_SPLITS, split + 1))]
    return Task("graph", graph, checked, splits, "uniform")


def _train_on(task: Task, request: RunRequest, place: Path, reporter: Reporter, budget: str | float | None) -> Run:
    """Save the task beside the run, and train on what was saved."""
    parts = [part for split in task.splits for part in (split.train, split.val, split.test)]
    graph = np.frombuffer(task.graph.fingerprint.encode(), np.uint8)
    folder = place.resolve().parent / f"data-{array_digest(graph, task.labels, *parts)[:16]}"
    is_new = not folder.exists()
    if is_new:
        task.save(folder)
    try:
        return _execute(replace(request, data=str(folder)), place, reporter, budget)
    except BaseException:
        if is_new and not (place / "config.json").exists():  # no run needs it
            shutil.rmtree(folder, ignore_errors=True)
        raise
