from __future__ import annotations

from pathlib import Path

import typer

from polyformer.cli.display import Display

__all__ = ["verify"]


def verify(
    directory: Path = typer.Argument(..., help="A graph, token or run directory, or a saved classifier."),
) -> None:
    """Read every byte of a directory and tell whether it is what was written there.

    Opening a directory reads small files whole and large ones in places; this command reads all of them. It ends with
    code 0 if everything is whole and with code 2 if a file is damaged, which it names.

    Examples:

    - `polyformer verify runs/cora`

    - `polyformer verify my_graph`
    """
    from polyformer.verification import verify_directory

    display = Display()
    for sentence in verify_directory(directory):
        display.say(sentence)
