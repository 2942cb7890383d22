"""What the commands whose work can be spread over a Ray cluster have in common."""

from __future__ import annotations

import os
from collections.abc import Iterable

import typer

__all__ = ["ADDRESS", "PLACE", "on_ray"]

_VARIABLE = "RAY_ADDRESS"

ADDRESS = typer.Option(
    None,
    envvar=_VARIABLE,
    metavar="auto|HOST:PORT",
    help="The Ray cluster of --engine ray. [default: one is started on this machine]",
)

PLACE = typer.Option("local", "--engine", help="local: processes of this machine; ray: tasks on a Ray cluster.")


def on_ray(
    engine: str,
    address: str | None,
    workers: int | None = None,
    engines: Iterable[str] = ("local", "ray"),
    otherwise: str = "Leave it out.",
) -> bool:
    """Whether ``--engine`` asks for Ray; another name than those of ``engines``, and options of Ray alone, are refused.

    Args:
        workers: None also where the option means something without Ray.
        otherwise: what to do without Ray.
    """
    from polyformer.errors import InvalidParameter, UnknownName
    from polyformer.registry import suggest

    if engine not in engines:
        raise UnknownName(f"Unknown engine '{engine}'. {suggest(engine, engines)}")
    asked = None if address == os.environ.get(_VARIABLE) else address  # the variable may be set for other programs
    for option, value in (("--workers", workers), ("--address", asked)):
        if engine != "ray" and value is not None:
            got = f"Got {value} with --engine {engine}."
            raise InvalidParameter(f"'{option}' goes with --engine ray. {got} {otherwise}")
    return engine == "ray"
