"""All tokens of a token directory computed anew, for a change that touches most of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from polyformer.errors import DataNotFound, FileCorrupt, OutputExists
from polyformer.files import partial_place
from polyformer.graph import Graph
from polyformer.propagation.engine import Engine
from polyformer.reporter import Reporter
from polyformer.stores.directory import StoredTokens
from polyformer.stores.folding import switch_files
from polyformer.tokens import write_tokens

__all__ = ["replace_tokens"]


def replace_tokens(stored: StoredTokens, graph: Graph, engine: Engine, reporter: Reporter, rms: list[float]) -> None:
    """Compute all tokens of the graph anew; the directory keeps the old version until the new one is whole.

    Unfinished tokens lie beside the directory, so that the same update goes on where it was killed.
    """
    directory, manifest = stored.directory, stored.manifest
    aside = directory.parent / f".{directory.name}.anew"
    arguments = (graph, aside, manifest["view"], manifest["order"], stored.self_loops, None, engine, reporter)
    try:
        if not _is_of(aside, graph):
            shutil.rmtree(aside, ignore_errors=True)
            write_tokens(*arguments, manifest["dtype"])
    except OutputExists:  # unfinished tokens of another version of the graph
        shutil.rmtree(partial_place(aside), ignore_errors=True)
        write_tokens(*arguments, manifest["dtype"])
    version = manifest.get("version", 0) + 1
    base = f"tokens-{version}.npy"
    os.rename(aside / "tokens.npy", directory / base)
    names = {"base": base, "log": f"changes-{version}.log", "base_rows": graph.num_nodes, "version": version}
    facts: dict[str, Any] = {
        "graph": graph.fingerprint,
        "structure": graph.structure_fingerprint,
        "num_rows": graph.num_nodes,
        "error_bounds": [0.0] * (manifest["order"] + 1),
    }
    if manifest["dtype"] == "float32":
        facts["rms"] = rms
    else:
        stored.manifest.pop("rms", None)  # what rounding leaves out is to be found anew
    switch_files(stored, names | facts)
    shutil.rmtree(aside, ignore_errors=True)


def _is_of(aside: Path, graph: Graph) -> bool:
    """Whether whole tokens of this very graph lie there already."""
    try:
        return bool(StoredTokens(aside).manifest["graph"] == graph.fingerprint)
    except (DataNotFound, FileCorrupt):
        return False
