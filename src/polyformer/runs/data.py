"""The data of a run: read, its features made ready for a model, and its split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polyformer.columns import check_columns, columns_to_read
from polyformer.datasets import load_source
from polyformer.errors import InvalidParameter
from polyformer.feature_preparation import prepare_task, prepare_task_alike
from polyformer.reporter import SILENT, Reporter
from polyformer.runs.request import RunRequest
from polyformer.runs.saved_model import ModelCard
from polyformer.splits import Split, hold_out
from polyformer.tasks import Task, check_trainable

__all__ = ["load_task", "read_alike"]


def load_task(request: RunRequest, card: ModelCard | None = None, reporter: Reporter = SILENT) -> tuple[Task, Split]:
    """The task and the split of the request; validation nodes are drawn from training where there are none.

    Args:
        card: card of a run that was started: features are read as the run read them. By default they are prepared anew.
        reporter: hears what was taken as what, and what was done to the features.
    """
    columns = None if card is None else columns_to_read(card.columns)
    task = load_source(request.data, request.data_root, request.protocol, reporter=reporter, columns=columns)
    settings = request.resolve_settings()
    _check_split(request, task)
    if settings["metric"] != "default":
        task = replace(task, metric=settings["metric"])
    if card is None:
        task = prepare_task(task, settings["scale_features"], reporter)
    else:
        task = prepare_task_alike(task, card.columns, card.scaling)
    split = task.splits[request.split]
    if len(split.val) == 0:
        train, val = hold_out(split.train, task.labels, seed=request.seed)
        split = Split(train, val, split.test)
    check_trainable(task, split)
    return task, split


def _check_split(request: RunRequest, task: Task) -> None:
    if not task.splits:
        raise InvalidParameter(
            f"'{request.data}' has no labelled splits, so nothing can be trained on it. "
            f"Import it with its labels: polyformer import {Path(request.data).name} GRAPH --label-column COLUMN."
        )
    if not 0 <= request.split < len(task.splits):
        count = len(task.splits)
        numbers = "one split, number 0" if count == 1 else f"{count} splits, numbers 0 to {count - 1}"
        raise InvalidParameter(f"'{Path(request.data).name}' has {numbers}. Got {request.split}.")


def read_alike(
    card: ModelCard,
    data: str,
    root: str | None = None,
    protocol: str | None = None,
    reporter: Reporter = SILENT,
    applied: bool = False,
    held_out: bool = False,
) -> Task:
    """A graph for a trained model: tables and features are read as those of the training were.

    Args:
        applied: whether splits in the files do not matter, as for a graph that the model was not trained on.
        held_out: whether splits of such a graph are read all the same; see :func:`load_source`.
    """
    columns = columns_to_read(card.columns)
    task = load_source(data, root, protocol, reporter=reporter, applied=applied, held_out=held_out, columns=columns)
    check_columns(columns or None, task.columns, data)
    return prepare_task_alike(replace(task, metric=card.metric), card.columns, card.scaling)
