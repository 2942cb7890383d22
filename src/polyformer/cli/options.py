"""Options of the commands, each declared once: by the field of a dataclass, or here where several verbs share one."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "AnotherGraph",
    "Basis",
    "Clusters",
    "DataRoot",
    "Device",
    "FeatureRun",
    "JsonSummary",
    "MemoryLimit",
    "NodeSelection",
    "SelfLoops",
    "Settings",
    "StoredTokens",
    "TrainedRun",
    "dataclass_options",
    "options_from",
]

AnotherGraph = Annotated[
    str | None,
    typer.Argument(metavar="[PATH]", help="Another graph with the same features. [default: the graph of the run]"),
]
Basis = Annotated[
    str | None,
    typer.Option(help="Basis of the tokens; see `polyformer bases`. [default: legendre; monomial with few labels]"),
]
Clusters = Annotated[int | None, typer.Option(help="Number of kinds of filters. [default: 2 to 6, by silhouette]")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder in which data files are looked for first.")]
FeatureRun = Annotated[
    Path | None,
    typer.Option("--like", metavar="RUN", help="Read the features as this run read them, so that its model fits them."),
]
JsonSummary = Annotated[
    bool, typer.Option("--json", help="Print a summary as JSON on stdout and nothing else on stdout.")
]
Device = Annotated[str, typer.Option(help="Device to compute on: auto, cpu, cuda or mps.")]

MemoryLimit = Annotated[
    str | None,
    typer.Option(
        help="Use at most this much memory, e.g. 8GiB; tokens that need more go through the disk. "
        "[default: 80 % of free memory]",
    ),
]
NodeSelection = Annotated[
    str, typer.Option(help="Nodes to take: all, labelled, or a file of node numbers (.npy, or text with one a line).")
]
SelfLoops = Annotated[
    bool | None,
    typer.Option("--self-loops/--no-self-loops", help="Propagate with A + I instead of the adjacency A."),
]
Settings = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any setting of `polyformer models NAME`; may be given more than once."
    ),
]
StoredTokens = Annotated[
    Path | None,
    typer.Option(help="Token directory of these nodes (`polyformer tokens`). [default: tokens are computed]"),
]
TrainedRun = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a saved classifier.")]


def options_from(
    kind: type, parameter: str, only: Collection[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each field of a dataclass that :func:`polyformer.settings.setting` declares.

    The field's text becomes the ``--help`` of the option, with the field's default unless the text names one. The
    command gets the values that the user gave, and no others, as a dict in its parameter named ``parameter``. So the
    dataclass alone knows names, texts and defaults, and a command can tell what was given from what was left out.

    Args:
        only: names of the fields to take; all by default.

    Example:
        >>> from dataclasses import dataclass
        >>> from polyformer.settings import setting
        >>> @dataclass(frozen=True)
        ... class Options:
        ...     seed: int = setting(0, "Seed for drawing the splits.")
        >>> @options_from(Options, "given")
        ... def draw(given: dict[str, Any]) -> None:
        ...     print(given)
        >>> draw(seed=3)
        {'seed': 3}
        >>> draw()
        {}
        >>> print(inspect.signature(draw).parameters["seed"].default.help)
        Seed for drawing the splits. [default: 0]
    """
    hints = typing.get_type_hints(kind)
    declared = [field for field in fields(kind) if "help" in field.metadata and (only is None or field.name in only)]
    options = {field.name: _parameter(field, hints[field.name]) for field in declared}
    parsers = {field.name: _parser(field, hints[field.name]) for field in declared}

    def parse(values: dict[str, Any]) -> dict[str, Any]:
        return {name: parsers[name](text) for name, text in values.items() if text is not None}

    return lambda command: _replace_parameter(command, parameter, options, parse)


def dataclass_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, whose parameter ``options`` is a dataclass, an option for each field of that dataclass.

    A field is declared as the parameter of a Typer command is: an ``Annotated`` type, and a default unless the option
    must be given. So a command reads one object, and its own length is that of its help and its work.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Options:
        ...     seed: Annotated[int, typer.Option(help="Seed for drawing the splits.")] = 0
        >>> @dataclass_options
        ... def draw(options: Options) -> None:
        ...     print(options)
        >>> draw(seed=3)
        Options(seed=3)
    """
    kind = inspect.signature(command, eval_str=True).parameters["options"].annotation
    hints = typing.get_type_hints(kind, include_extras=True)
    options = {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name]
        )
        for field in fields(kind)
    }
    return _replace_parameter(command, "options", options, lambda values: kind(**values))


def _replace_parameter(
    command: Callable[..., None],
    parameter: str,
    options: dict[str, inspect.Parameter],
    make: Callable[[dict[str, Any]], Any],
) -> Callable[..., None]:
    """The command with options in the place of a parameter, whose value is made from the values of the options."""

    @functools.wraps(command)
    def make_and_call(**values: Any) -> None:
        texts = {name: values.pop(name) for name in options if name in values}
        command(**values, **{parameter: make(texts)})

    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command, eval_str=True).parameters.items():
        parameters += options.values() if name == parameter else [own.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    make_and_call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    make_and_call.__annotations__ = {own.name: own.annotation for own in parameters}
    return make_and_call


def _default(field: Field[Any]) -> Any:
    """The default of a field, as a signature says it."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is MISSING else field.default


def _parameter(field: Field[Any], hint: Any) -> inspect.Parameter:
    """The parameter of a command that stands for the field; None says that the option was left out."""
    option = typer.Option(None, metavar=field.metadata.get("metavar"), help=_help(field))
    written = str if "parse" in field.metadata else _without_none(hint)
    annotation = str | None if typing.get_origin(written) is tuple else written | None
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation)


def _help(field: Field[Any]) -> str:
    text: str = field.metadata["help"]
    if "[default:" in text or field.default in (None, "", ()):
        return text
    return f"{text} [default: {field.default}]"


def _parser(field: Field[Any], hint: Any) -> Callable[[Any], Any]:
    """What makes the field's value from the option's; a tuple is written with commas."""
    if "parse" in field.metadata:
        parse: Callable[[Any], Any] = field.metadata["parse"]
        return parse
    return _split_names if typing.get_origin(_without_none(hint)) is tuple else _as_it_is


def _without_none(hint: Any) -> Any:
    """
    >>> _without_none(int | None)
    <class 'int'>
    """
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    [choice] = [choice for choice in typing.get_args(hint) if choice is not type(None)]
    return choice


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _as_it_is(value: Any) -> Any:
    return value
