"""The schema of every JSON that a run, a study or an experiment writes. One line a field.

Fields that earlier versions did not write are optional, so that their directories stay readable.
"""

from __future__ import annotations

from polyformer.files.data_schemas import COLUMNS, COUNT, NODES, SCALING
from polyformer.files.schema import Anything, Flag, Kind, ListOf, Number, Object, Schema, TableOf, Text, Whole
from polyformer.limits import MOST_NODES

__all__ = [
    "ANY_CONFIG",
    "CHECKPOINT",
    "EPOCH",
    "ESTIMATOR_CONFIG",
    "EXPORT",
    "FIGURE",
    "LABELS",
    "MODEL_CONFIG",
    "RACE",
    "RECORD",
    "RECORD_LINE",
    "RESULT",
    "RUN_CONFIG",
    "STUDY",
    "WEIGHTS",
]

_SCORE = Number() | None
_INTERVAL = ListOf(Number(), 2) | None
_VERSIONS = TableOf(Text())

_CARD = Object(
    {
        "model": Text(),
        "settings": TableOf(),
        "in_channels": Whole(0, MOST_NODES),
        "num_classes": Whole(0, MOST_NODES),
        "objective": Text(),
        "metric": Text(),
    },
    {
        "class_names": ListOf(Text()) | None,
        "columns": COLUMNS,
        "units": ListOf(Number(), 2),
        "threshold": _SCORE,
        "scaling": SCALING,
        "label_channels": Whole(0, MOST_NODES),
    },
)

ANY_CONFIG = Schema("a run directory", TableOf())
"""The ``config.json`` of a run or of a classifier, before it is known which."""

MODEL_CONFIG = Schema(
    "a run directory or a saved classifier", Object({"card": _CARD}, {"seed": COUNT, "device": Text()}), checksum=True
)

ESTIMATOR_CONFIG = Schema(
    "a saved estimator",
    Object(
        {"card": _CARD, "seed": COUNT, "device": Text()},
        {"classes": Object({"kind": Text(("bool", "float", "int", "str")), "names": ListOf(Anything())})},
    ),
    checksum=True,
)

_TASK_OF_RUN = Object(
    {
        "name": Text(),
        "protocol": Text(),
        "fingerprint": Text(),
        "nodes": NODES,
        "edges": COUNT,
        "features": COUNT,
        "classes": COUNT,
        "train": NODES,
        "val": NODES,
        "test": NODES,
    },
    {"labels": Text(), "preprocessing": ListOf(Text()), "version": COUNT},
)

_REQUEST: dict[str, Kind] = {
    "data": Text(),
    "model": Text(),
    "protocol": Text() | None,
    "split": COUNT,
    "seed": COUNT,
    "device": Text(),
    "preset": Text() | None,
    "settings": TableOf(),
    "task": _TASK_OF_RUN,
}
_OF_THIS_MACHINE: dict[str, Kind] = {"data_root": Text() | None, "tokens": Text() | None, "memory": COUNT | None}

_TRIAL = Object(
    {"settings": TableOf(), "val": _SCORE, "epochs": COUNT, "seconds": Number(), "kept": Flag(), "interval": _INTERVAL}
)

RUN_CONFIG = Schema(
    "a run directory",
    Object(
        _REQUEST | _OF_THIS_MACHINE | {"card": _CARD},
        {"versions": _VERSIONS, "start_from": Text() | None, "trials": ListOf(_TRIAL)},
    ),
    checksum=True,
)

_BEFORE_AND_AFTER = {name: ListOf(_SCORE, 2) for name in ("log_loss", "calibration_error")}
_EFFECT_OF_CALIBRATION = Object(
    {"temperature": Number(), "fitted_on": COUNT, "measured_on": Text(), "nodes": COUNT} | _BEFORE_AND_AFTER
)

_RESULT_LATER: dict[str, Kind] = {
    "data": Text(),
    "model": Text(),
    "protocol": Text(),
    "split": COUNT,
    "seed": COUNT,
    "threshold": _SCORE,
    "coverage_nodes": COUNT,
    "calibration": _EFFECT_OF_CALIBRATION | None,
    "test_interval": _INTERVAL,
    "baseline": _SCORE,
    "gain_interval": _INTERVAL,
    "scores": TableOf(_SCORE),
    "squared_error": _SCORE,
    "warnings": ListOf(Text()),
    "cpu_seconds": Number(),
    "preparation_cpu_seconds": Number(),
    "workers": COUNT,
    "resumed_after": ListOf(COUNT),
    "versions": _VERSIONS,
    "run": Text(),
    "trials": ListOf(_TRIAL),
    "history": Text(),
}
_RESULT_OF_RECORD: dict[str, Kind] = {
    "metric": Text(),
    "test": _SCORE,
    "seconds": Number(),
    "preparation_seconds": Number(),
    "peak_memory_bytes": COUNT,
}
_RESULT_OF_RUN: dict[str, Kind] = {"val": _SCORE, "best_epoch": COUNT, "epochs": COUNT, "parameters": COUNT}

RESULT = Schema("a finished run", Object(_RESULT_OF_RECORD | _RESULT_OF_RUN, _RESULT_LATER), checksum=True)

EPOCH = Schema(
    "a run directory", Object({"epoch": COUNT, "loss": _SCORE, "val": _SCORE, "seconds": Number()}), checksum=True
)

_FIELDS_OF_RECORD: dict[str, Kind] = {"result": Object(_RESULT_OF_RECORD, _RESULT_OF_RUN | _RESULT_LATER)}
_LATER_IN_RECORD: dict[str, Kind] = {
    "plan": Text(),
    "model": Text(),
    "basis": Text() | None,
    "dataset": Text(),
    "config": Object(_REQUEST, {"versions": _VERSIONS}),
}

RECORD = Schema("a folder of records", Object(_FIELDS_OF_RECORD, _LATER_IN_RECORD), checksum=True)
"""A file that holds one record, ``<plan>/<run>.json``, as earlier versions wrote it."""

RECORD_LINE = Schema("a file of records", Object({"name": Text()} | _FIELDS_OF_RECORD, _LATER_IN_RECORD), checksum=True)
"""A line of the file ``<plan>.jsonl``; the name tells the run from the other runs of the plan."""

CHECKPOINT = Schema(
    "checkpoint",
    Object(
        {"epoch": COUNT, "seconds": Number(), "best_epoch": COUNT, "best_score": Number(finite=False)},
        {"resumed_after": ListOf(COUNT), "cpu_seconds": Number(), "run": Text()},
        closed=True,
    ),
)

_CALIBRATION = Object(
    {
        "temperature": Number(),
        "threshold": _SCORE,
        "held_out": ListOf(Number()) | None,
        "nodes": COUNT,
        "effect": Object({}, _BEFORE_AND_AFTER, closed=True),
    },
    closed=True,
)

WEIGHTS = Schema(
    "model", Object({}, {"format": COUNT, "threshold": _SCORE, "calibration": _CALIBRATION, "run": Text()})
)

LABELS = Schema(
    "file of labels",
    Object(
        {
            "format": COUNT,
            "structure": Text(),
            "num_nodes": NODES,
            "num_classes": COUNT,
            "units": ListOf(Number(), 2),
        },
        {"run": Text()},
        closed=True,
    ),
)

STUDY = Schema(
    "a study",
    Object(
        {
            "data": Text(),
            "model": Text(),
            "protocol": Text() | None,
            "split": COUNT,
            "seed": COUNT,
            "settings": TableOf(),
            "space": TableOf(ListOf(Anything())),
        },
        {"splits": COUNT},
    ),
)

_PORT = Object({"name": Text(), "dtype": Text(), "shape": ListOf(Anything())})

EXPORT = Schema(
    "an exported model",
    Object(
        {
            "file": Text(),
            "model": Text(),
            "steps": ListOf(Text()),
            "input": _PORT,
            "output": _PORT,
            "classes": ListOf(Text()) | None,
            "threshold": _SCORE,
            "features": Object(
                {
                    "count": COUNT,
                    "columns": COLUMNS,
                    "from_structure": Flag(),
                    "scaling": SCALING,
                    "laplacian_encoding": COUNT,
                    "preprocessing": ListOf(Text()),
                }
            ),
            "tokens": Object(
                {"order": COUNT, "self_loops": Flag(), "basis": Text(), "mixing": ListOf(ListOf(Number()))}
            ),
        },
        {"polyformer": Text()},
    ),
    tags={"format": 1},
)

RACE = Schema(
    "a search of models",
    Object(
        {
            "request": Object({"data": Text(), "model": Text()}),
            "budget": Number(),
            "standings": TableOf(
                Object({"status": Text(), "val": _SCORE, "epochs": COUNT, "seconds": Number(), "error": Text() | None})
            ),
            "spent": Number(),
            "round": COUNT,
            "turns": ListOf(Text()),
            "contenders": ListOf(Text()),
            "winner": Text() | None,
            "leaderboard": TableOf() | None,
        }
    ),
    checksum=True,
)

FIGURE = Schema("a figure", Object({"title": Text(), "notes": ListOf(Text()), "panels": ListOf(Anything())}))
