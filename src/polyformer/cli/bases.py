from __future__ import annotations

from polyformer.cli.display import Display

__all__ = ["bases"]


def bases() -> None:
    """List the polynomial bases, with their formulas.

    Options of a basis follow its name: `--basis jacobi:a=0.5,b=1`. CONTRIBUTING.md says how to add a basis of your own.

    Examples:

    - `polyformer bases`

    - `polyformer train --basis jacobi:a=0.5,b=1`
    """
    from polyformer.bases import BASES

    display = Display()
    for name in BASES:
        kind = BASES[name]
        options = ", ".join(f"{key}={value}" for key, value in kind().options.items())
        display.say(f"{name:<11} {BASES.summary(name)}" + (f" Options: {options}." if options else ""))
