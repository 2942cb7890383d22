"""Formats that are not read, and for each what to do instead."""

from __future__ import annotations

__all__ = ["advice_for"]

_NETWORKX = (
    "Read it with networkx.{reader}, and make polyformer.Graph.from_networkx of it, or write "
    "networkx.to_pandas_edgelist as edges.csv."
)

_ADVICE: dict[tuple[str, ...], str] = {
    (".graphml", ".graphml.gz"): _NETWORKX.format(reader="read_graphml"),
    (".gml", ".gml.gz"): _NETWORKX.format(reader="read_gml"),
    (".gexf",): _NETWORKX.format(reader="read_gexf"),
    (".net", ".paj"): _NETWORKX.format(reader="read_pajek"),
    (".dot", ".gv"): _NETWORKX.format(reader="nx_pydot.read_dot"),
    (".g6", ".graph6"): _NETWORKX.format(reader="read_graph6"),
    (".adjlist",): _NETWORKX.format(reader="read_adjlist"),
    (".edgelist", ".edges", ".el"): "If each of its lines is a pair of ids, rename it to edges.txt.",
    (".gpickle", ".pickle", ".pkl", ".p"): (
        "A pickle can run any code when it is opened, so it is not opened here. Open it where it was written, and "
        "write edges.csv and nodes.csv."
    ),
    (".json", ".jsonl", ".ndjson", ".json.gz"): (
        "JSON has no agreed form for graphs. Read it in Python, with networkx.node_link_graph if that wrote it, and "
        "write edges.csv and nodes.csv."
    ),
    (".xlsx", ".xls", ".xlsm", ".ods"): (
        "Save the sheet of edges as edges.csv and the sheet of nodes as nodes.csv, in one folder."
    ),
    (".feather", ".arrow", ".orc", ".avro"): "Write it as Parquet, with pyarrow.parquet.write_table or pandas.",
    (".h5", ".hdf5", ".h5ad", ".loom"): "Write its adjacency matrix with scipy.sparse.save_npz, or tables as CSV.",
    (".db", ".sqlite", ".sqlite3"): "Export the table of edges as edges.csv and the table of nodes as nodes.csv.",
    (".rds", ".rda", ".rdata"): "Write its tables in R with write.csv, as edges.csv and nodes.csv.",
    (".zip", ".tar", ".tar.gz", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst"): "Unpack it first.",
}


def advice_for(name: str) -> str | None:
    """What to do with a file of this name; None where its format is not known.

    >>> advice_for("people.XLSX")
    'Save the sheet of edges as edges.csv and the sheet of nodes as nodes.csv, in one folder.'
    """
    return next((advice for endings, advice in _ADVICE.items() if name.lower().endswith(endings)), None)
