from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyformer.cli.display import Display
from polyformer.cli.options import DataRoot, JsonSummary
from polyformer.reporter import Reporter, Tee

__all__ = ["compare"]


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Run directories, finished or not.")],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("comparison.html"),
    data_root: DataRoot = None,
    json_only: JsonSummary = False,
) -> None:
    """Put several runs side by side in one HTML file: scores with intervals, curves, filters.

    Needs the extra: `pip install 'polyformer[report]'`.

    Examples:

    - `polyformer compare runs/polyattn runs/unifilter --out comparison.html`
    """
    from polyformer.errors import InvalidParameter
    from polyformer.reports import check_extra, write_comparison
    from polyformer.reports.findings import gather

    display = Display(json_only)
    check_extra()
    if out.is_dir():
        raise InvalidParameter(f"'--out' must be a file. Got the directory '{out}'. Try {out / 'comparison.html'}.")
    root = None if data_root is None else str(data_root)
    findings = []
    with display.reporter() as reporter:
        for number, run in enumerate(runs):
            begun, ended = (position / (len(runs) + 1) for position in (number, number + 1))
            step = reporter.part(begun, ended, "comparing")
            findings.append(gather(run, data_root=root, importance=False, reporter=_OneRun(step)))
            step.share("comparing", 1.0)
        size = write_comparison(findings, out)
    display.say(f"comparison: {out} ({size / 1e6:.1f} MB, opens in any browser)")
    display.result({"out": str(out), "bytes": size})


class _OneRun(Tee):
    """One bar for all that is done with a run: its tokens, then its evaluation, then what takes no time."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(reporter)
        self._preparing, self._evaluating = reporter.part(0.0, 0.2), reporter.part(0.2, 0.6)

    def say(self, sentence: str) -> None:
        """What a run says when its model is prepared is not said again."""

    def share(self, work: str, done: float) -> None:
        (self._evaluating if work == "evaluating" else self._preparing).share(work, done)
