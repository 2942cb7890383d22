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
    from polyformer.runs.default_settings import FEW_LABELS
    from polyformer.settings import describe, in_words
    from polyformer.training.settings import TrainingSettings

    model_type = MODELS[name]
    for title, kind in ((name, model_type.settings_type), ("training", TrainingSettings)):
        display.say(f"{title}:")
        for key, default, text in describe(kind):
            display.say(f"  {key:<24} {model_type.training_defaults.get(key, default)!s:<10} {text}")
    if model_type.few_label_defaults:
        few = in_words(model_type.few_label_defaults)
        display.say(f"with at most {FEW_LABELS} training nodes, unless you ask for others: {few}")
    tried = {f"at most {FEW_LABELS}": model_type.few_label_alternatives, "more": model_type.alternatives}
    for count, alternatives in tried.items():
        for changes in alternatives:
            display.say(f"tried too with {count} training nodes, unless you ask for settings: {in_words(changes)}")
    spaces = {"searched by tune": model_type.search_space, "searched on large graphs": model_type.large_search_space}
    for title, space in spaces.items():
        if space:
            display.say(f"{title}:")
        for key, choices in space.items():
            display.say(f"  {key:<24} {', '.join(map(str, choices))}")
