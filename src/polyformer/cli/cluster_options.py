"""What the commands whose work can be spread over a Ray cluster have in common."""

from __future__ import annotations

import typer

__all__ = ["ADDRESS", "PLACE", "on_ray"]

ADDRESS = typer.Option(
    None,
    envvar="RAY_ADDRESS",
    metavar="auto|HOST:PORT",
    help="The Ray cluster of --engine ray. [default: one is started on this machine]",
)

PLACE = typer.Option("local", "--engine", help="local: processes of this machine; ray: tasks on a Ray cluster.")


def on_ray(place: str) -> bool:
    """Whether ``--engine`` asks for Ray; anything but that and ``local`` is refused."""
    from polyformer.errors import UnknownName
    from polyformer.registry import suggest

    if place not in ("local", "ray"):
        raise UnknownName(f"Unknown engine '{place}'. {suggest(place, ('local', 'ray'))}")
    return place == "ray"
