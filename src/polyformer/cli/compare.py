from __future__ import annotations

from pathlib import Path

import typer

from polyformer.cli.display import Display

__all__ = ["compare"]


def compare(
    runs: list[Path] = typer.Argument(..., metavar="RUN RUN...", help="Run directories, finished or not."),
    out: Path = typer.Option(Path("comparison.html"), help="The HTML file to write."),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    json_only: bool = typer.Option(False, "--json", help="Print a summary as JSON on stdout and nothing else there."),
) -> None:
    """Put several runs side by side in one HTML file: scores with intervals, curves, filters.

    Needs the extra: `pip install 'polyformer[report]'`.

    Examples:

    - `polyformer compare runs/polyattn runs/unifilter --out comparison.html`
    """
    from polyformer.errors import InvalidParameter
    from polyformer.progress import part_of
    from polyformer.reports import check_extra, write_comparison
    from polyformer.reports.findings import gather

    display = Display(json_only)
    check_extra()
    if out.is_dir():
        raise InvalidParameter(f"'--out' must be a file. Got the directory '{out}'. Try {out / 'comparison.html'}.")
    root = None if data_root is None else str(data_root)
    findings = []
    with display.stages() as loading, display.share("comparing") as shown:
        for number, run in enumerate(runs):
            tokens, evaluated, ended = ((number + part) / (len(runs) + 1) for part in (0.2, 0.6, 1.0))
            begun = number / (len(runs) + 1)
            progress, evaluating = part_of(shown, begun, tokens), part_of(shown, tokens, evaluated)
            findings.append(
                gather(run, data_root=root, importance=False, loading=loading, progress=progress, evaluated=evaluating)
            )
            shown(ended)
        size = write_comparison(findings, out)
    display.say(f"comparison: {out} ({size / 1e6:.1f} MB, opens in any browser)")
    display.result({"out": str(out), "bytes": size})
