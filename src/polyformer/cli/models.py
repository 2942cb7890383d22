from __future__ import annotations

import typer

from polyformer.cli.display import Display

__all__ = ["models"]


def models(name: str | None = typer.Argument(None, metavar="[NAME]", help="Show the settings of this model.")) -> None:
    """List the models, or every setting of one with its default and the values that tuning tries.

    Examples:

    - `polyformer models`

    - `polyformer models polyformer` — what `polyformer train --set key=value` understands
    """
    from polyformer.models import MODELS

    display = Display()
    if name is None:
        for entry in MODELS:
            display.say(f"{entry:<12} {MODELS.summary(entry)}")
        return
    from polyformer.settings import describe
    from polyformer.training.settings import TrainingSettings

    chosen = MODELS[name]
    for title, kind in ((name, chosen.settings_type), ("training", TrainingSettings)):
        display.say(f"{title}:")
        for key, default, text in describe(kind):
            display.say(f"  {key:<24} {chosen.training_defaults.get(key, default)!s:<10} {text}")
    spaces = {"searched by tune": chosen.search_space, "searched on large graphs": chosen.large_search_space}
    for title, space in spaces.items():
        if space:
            display.say(f"{title}:")
        for key, choices in space.items():
            display.say(f"  {key:<24} {', '.join(map(str, choices))}")
