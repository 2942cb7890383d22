from __future__ import annotations

from polyformer.cli.display import Display

__all__ = ["bases"]


def bases() -> None:
    """List the polynomial bases, with their formulas.

    Options of a basis follow its name: `--basis jacobi:a=0.5,b=1`. How to add your own is in CONTRIBUTING.md.

    Examples:

    - `polyformer bases`

    - `polyformer train --basis jacobi:a=0.5,b=1`
    """
    import inspect

    from polyformer.bases import BASES

    display = Display()
    for name in BASES:
        kind = BASES[name]
        summary = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
        options = ", ".join(f"{key}={value}" for key, value in kind().options.items())
        display.say(
            f"{name:<11} {summary.replace(':math:', '').replace('`', '')}"
            + (f" Options: {options}." if options else "")
        )
