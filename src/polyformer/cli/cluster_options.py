"""Options that all commands share whose work a Ray cluster can do."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated

import typer

__all__ = ["PLACES", "Place", "RayAddress", "on_ray"]

_VARIABLE = "RAY_ADDRESS"

RayAddress = Annotated[
    str | None,
    typer.Option(
        envvar=_VARIABLE,
        metavar="auto|HOST:PORT",
        help="The Ray cluster of --engine ray. [default: one is started on this machine]",
    ),
]

PLACES = ("local", "ray")
"""Where the work of a command can run. The engines of tokens are another list: ``polyformer.propagation.engine``."""

Place = Annotated[
    str,
    typer.Option(
        "--engine", help="Where the work runs. local: processes of this machine; ray: tasks on a Ray cluster."
    ),
]


def on_ray(
    engine: str,
    address: str | None,
    workers: int | None = None,
    choices: Iterable[str] = PLACES,
    otherwise: str = "Leave it out.",
) -> bool:
    """Whether ``--engine`` asks for Ray; refuse an unknown engine, and options of Ray without Ray.

    Args:
        workers: leave out where ``--workers`` means something without Ray too.
        otherwise: what to do without Ray.
    """
    from polyformer.errors import InvalidParameter, UnknownName
    from polyformer.registry import suggest

    if engine not in choices:
        raise UnknownName(f"Unknown engine '{engine}'. {suggest(engine, choices)}")
    typed_address = None if address == os.environ.get(_VARIABLE) else address  # other programs may need the variable
    for option, value in (("--workers", workers), ("--address", typed_address)):
        if engine != "ray" and value is not None:
            got = f"Got {value} with --engine {engine}."
            raise InvalidParameter(f"'{option}' goes with --engine ray. {got} {otherwise}")
    return engine == "ray"
