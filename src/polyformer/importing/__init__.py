"""The user's own graph: tables, npz, PyTorch Geometric and OGB files in, a graph directory or a task out."""

from polyformer.importing.importer import import_graph, open_source
from polyformer.importing.options import ColumnMatch, ImportOptions, ImportSummary

__all__ = ["ColumnMatch", "ImportOptions", "ImportSummary", "import_graph", "open_source"]
