from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyformer.cli.display import Display
from polyformer.cli.options import Clusters, DataRoot, JsonSummary, MemoryLimit

__all__ = ["report", "show_report"]


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, finished or not.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file to write. [default: report.html in the run directory]")
    ] = None,
    clusters: Clusters = None,
    memory: MemoryLimit = None,
    data_root: DataRoot = None,
    json_only: JsonSummary = False,
) -> None:
    """Write one HTML file that shows what a run learned and needs no network.

    The file shows scores, learning curves, confusion, calibration, spectra, the kinds of filters, and an explorer:
    click a node to see its filter beside the filter of its cluster.

    Needs the extra: `pip install 'polyformer[report]'`.

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
    from polyformer.reports import check_extra, write_report
    from polyformer.reports.findings import gather

    check_extra()
    if path.is_dir():
        raise InvalidParameter(f"'--out' must be a file. Got the directory '{path}'. Try {path / 'report.html'}.")
    with display.reporter() as reporter:
        findings = gather(run, data_root=data_root, clusters=clusters, memory=memory, reporter=reporter)
        size = write_report(findings, path)
    display.say(f"report: {path} ({size / 1e6:.1f} MB, opens in any browser)")
    return size
