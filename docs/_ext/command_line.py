"""The directive ``command-line``: a section for every verb of the program, written from its own ``--help``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from polyformer.cli import app


def _cell(text: str | None) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join((text or "").split()).replace("|", r"\|").replace("<", "&lt;")


def _parameters(command: Any) -> Iterator[str]:
    """A table of the arguments and options of a command."""
    rows = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if not rows:
        return
    yield "| argument or option | meaning |"
    yield "|---|---|"
    for parameter in rows:
        is_option = parameter.param_type_name == "option"
        names = (
            [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.metavar or parameter.name.upper()]
        )
        shown = ", ".join(f"`{_cell(name)}`" for name in names)
        default = parameter.default
        given = is_option and default not in (None, False, True, (), []) and not callable(default)
        told = "default:" in (parameter.help or "")
        suffix = f" Default: `{default}`." if given and not told else ""
        yield f"| {shown} | {_cell(parameter.help)}{suffix} |"
    yield ""


def command_pages() -> Iterator[str]:
    """Lines of Markdown: a section for each verb, in the order of ``polyformer --help``."""
    program = typer.main.get_command(app)
    for name, command in program.commands.items():  # type: ignore[attr-defined]
        yield f"## polyformer {name}\n"
        yield (command.help or "").strip() + "\n"
        yield from _parameters(command)


class CommandLine(SphinxDirective):
    """Writes the sections in its place."""

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown of all verbs."""
        return self.parse_text_to_nodes("\n".join(command_pages()), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx of the directive."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
