"""The disk engine on features larger than its memory, the page cache included where the system can count it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from polyformer.feature_scaling import FeatureScaling
from polyformer.graph import Graph
from polyformer.tokens import open_tokens
from tests.edits import rewrite_json

pytestmark = pytest.mark.slow

NODES, COLUMNS = 150_000, 1024
LIMIT, MEMORY = 500 << 20, "420MiB"  # of which the process itself takes 260


@pytest.fixture
def control_group() -> Iterator[Path | None]:
    """A control group whose limit counts the page cache too; None where none can be made."""
    group = Path(f"/sys/fs/cgroup/memory/polyformer-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
        yield group
    finally:
        group.rmdir()


@pytest.fixture
def wide_graph(tmp_path: Path) -> Iterator[Path]:
    """A ring of 150,000 nodes with 1,024 float32 columns, 614 MB, written in pieces and removed at the end."""
    folder, step = tmp_path / "wide", 3000
    here = np.arange(NODES)
    Graph(np.stack([here, (here + 1) % NODES]), np.zeros((NODES, 1), np.float32)).save(folder)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float32, (NODES, COLUMNS))
    del features  # a file of that size, zeros so far
    with (folder / "features.npy").open("r+b") as file:
        file.seek(-4 * NODES * COLUMNS, 2)
        for start in range(0, NODES, step):
            file.write(wide_rows(np.arange(start, start + step)).data)
    rewrite_json(folder / "manifest.json", num_features=COLUMNS, files={})
    yield folder
    (folder / "features.npy").unlink()


def wide_rows(nodes: np.ndarray) -> np.ndarray:
    """(n, 1024): numbers in [0, 1) that differ from node to node and from column to column."""
    mixed = nodes[:, None].astype(np.uint32) * np.uint32(2654435761) + np.arange(COLUMNS, dtype=np.uint32) * 40503
    return (mixed >> np.uint32(8)).astype(np.float32) / np.float32(1 << 24)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit and the high-water mark are Linux's")
def test_features_larger_than_memory(wide_graph: Path, control_group: Path | None, tmp_path: Path) -> None:
    """614 MB of scaled features within 500 MiB: by a control group that counts page cache, else by resident memory."""
    nodes = np.array([0, 7, 12_345, NODES - 1])
    np.save(tmp_path / "nodes.npy", nodes)
    script = """
import re, sys
from pathlib import Path
from polyformer.cli import main
from tests.edits import rewrite_json
try:
    main(sys.argv[1:])
finally:
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
    command = ["tokens", str(wide_graph), "--engine", "disk", "--memory", MEMORY, "--order", "1"]
    command += ["--nodes", str(tmp_path / "nodes.npy"), "--out", str(tmp_path / "t")]
    enter = "" if control_group is None else f"echo $$ > {control_group}/cgroup.procs && "
    arguments = ["sh", "-c", f'{enter}exec "$@"', "sh", sys.executable, "-c", script, *command]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 1024 * int(done.stdout.split()[-1]) < LIMIT
    if control_group is not None:
        assert int((control_group / "memory.max_usage_in_bytes").read_text()) <= LIMIT
    stored = open_tokens(tmp_path / "t")
    tokens, scaling = stored[:].numpy(), FeatureScaling.from_json(stored.manifest["scaling"])
    assert scaling is not None
    here, before, after = (scaling.apply(wide_rows((nodes + step) % NODES)) for step in (0, -1, 1))
    assert np.array_equal(tokens[:, 0], here)
    assert np.allclose(tokens[:, 1], -(before + after) / 2, atol=1e-6)
