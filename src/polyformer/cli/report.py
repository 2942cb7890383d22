from __future__ import annotations

from pathlib import Path

import typer

from polyformer.cli.display import Display

__all__ = ["report", "show_report"]


def report(
    run: Path = typer.Argument(..., metavar="RUN", help="A run directory, finished or not."),
    out: Path | None = typer.Option(None, help="The HTML file to write. [default: report.html in the run directory]"),
    clusters: int | None = typer.Option(None, help="Number of kinds of filters. [default: 2 to 6, by silhouette]"),
    memory: str | None = typer.Option(
        None,
        help="Use at most this memory, e.g. 8GiB; tokens that need more go through the disk. [default: 80 % of free]",
    ),
    data_root: Path | None = typer.Option(None, help="Where data files are looked for first."),
    json_only: bool = typer.Option(False, "--json", help="Print a summary as JSON on stdout and nothing else there."),
) -> None:
    """Write what a run learned as one HTML file that needs no network.

    Scores, learning curves, confusion, calibration, spectra, the kinds of filters, and an explorer: click a node to
    see its own filter beside its cluster's. Needs the extra: `pip install 'polyformer[report]'`.

    Examples:

    - `polyformer report runs/my-run`

    - `polyformer report runs/my-run --clusters 5 --out my-run.html`
    """
    from polyformer.machine import parse_bytes

    display = Display(json_only)
    path = run / "report.html" if out is None else out
    limit = None if memory is None else parse_bytes(memory)
    size = show_report(display, run, path, clusters, limit, None if data_root is None else str(data_root))
    display.result({"out": str(path), "bytes": size})


def show_report(
    display: Display,
    run: Path,
    path: Path,
    clusters: int | None = None,
    memory: int | None = None,
    data_root: str | None = None,
) -> int:
    """Write the report and say where it is; returns its size in bytes."""
    from polyformer.errors import InvalidParameter
    from polyformer.progress import part_of
    from polyformer.reports import check_extra, write_report
    from polyformer.reports.findings import gather

    check_extra()
    if path.is_dir():
        raise InvalidParameter(f"'--out' must be a file. Got the directory '{path}'. Try {path / 'report.html'}.")
    with display.stages() as loading, display.share("tokens") as progress, display.share("report") as shown:
        findings = gather(
            run,
            data_root=data_root,
            clusters=clusters,
            memory=memory,
            loading=loading,
            report=display.say,
            progress=progress,
            evaluated=part_of(shown, 0.0, 0.6),
        )
        size = write_report(findings, path)
    display.say(f"report: {path} ({size / 1e6:.1f} MB, opens in any browser)")
    return size
