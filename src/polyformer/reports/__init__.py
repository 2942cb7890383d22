"""Reports of runs: run directories in, one self-contained HTML file out."""

from __future__ import annotations

from polyformer.reports.comparison import write_comparison
from polyformer.reports.document import check_extra, write_report

__all__ = ["check_extra", "write_comparison", "write_report"]
