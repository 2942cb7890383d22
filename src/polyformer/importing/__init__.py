"""Imports of the user's own graph: tables and array files in, a graph directory or a task out.

The importer is loaded when it is first used: the command line's help reads the options alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyformer.importing.options import ColumnMatch, ImportOptions, ImportSummary

if TYPE_CHECKING:
    from polyformer.importing.importer import import_graph, open_source

__all__ = ["ColumnMatch", "ImportOptions", "ImportSummary", "import_graph", "open_source"]


def __getattr__(name: str) -> Any:
    if name not in ("import_graph", "open_source"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from polyformer.importing import importer

    return getattr(importer, name)
