"""Imports stay within their bound on resident memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polyformer.graph import Graph

pytestmark = pytest.mark.slow

NUM_EDGES = 5_000_000
NUM_NODES = 1_000_000
SCRIPT = """
import json, re, sys
from pathlib import Path
from polyformer.importing import ImportOptions, import_graph
from polyformer.machine import resident_bytes

bound = resident_bytes() + (300 << 20)
summary = import_graph(sys.argv[1], sys.argv[2], ImportOptions(memory=bound))
peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(json.dumps({"bound": bound, "peak": peak, "edges": summary.num_edges}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is read from /proc")
@pytest.mark.parametrize("form", ["edges.parquet", "edges.i32"])
def test_five_million_edges_within_the_bound(tmp_path: Path, form: str) -> None:
    # The peak comes from /proc, because ru_maxrss of a child starts from its parent's.
    pairs = np.random.default_rng(0).integers(0, NUM_NODES, (NUM_EDGES, 2), dtype=np.int32)
    if form == "edges.parquet":
        table = pa.table({"source": pairs[:, 0], "target": pairs[:, 1]})
        pq.write_table(table, tmp_path / form, row_group_size=NUM_EDGES)
    else:
        pairs.tofile(tmp_path / form)
    arguments = [sys.executable, "-c", SCRIPT, str(tmp_path / form), str(tmp_path / "graph")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["peak"] <= result["bound"], result
    graph = Graph(pairs.T)
    assert result["edges"] == graph.num_edges
    assert Graph.load(tmp_path / "graph").fingerprint == graph.fingerprint
