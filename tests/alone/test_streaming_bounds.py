"""Streaming stays within its memory, page cache included, and near the speed of tokens in memory."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.streaming import forget_pages, measure
from polyformer.feature_scaling import FeatureScaling
from polyformer.graph import Graph
from polyformer.splits import Split
from polyformer.tasks import Task
from polyformer.tokens import token_bytes, write_tokens

pytestmark = pytest.mark.slow

NUM_NODES, WIDTH, ORDER = 50_000, 512, 4
SCRIPT = """
import ctypes, json, mmap, re, sys
from pathlib import Path
import numpy as np, pyarrow.parquet, torch
from polyformer.datasets import load_dataset
from polyformer.models import Workload
from polyformer.runs.prediction import predict_blocks, write_predictions
from polyformer.runs.execution import execute_run
from polyformer.runs.request import RunRequest
from polyformer.runs.run import Run

torch.set_num_threads(1)
folder, bound = Path(sys.argv[1]), int(sys.argv[2])
small = {"epochs": 1, "hidden_channels": 8, "heads": 2}
load_dataset("minefield:width=40,height=40").save(folder / "board")
execute_run(RunRequest(str(folder / "board"), settings=small), folder / "warm")  # loads the libraries that it takes


def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])


def cached(path):
    array = np.memmap(path, np.uint8, "r")
    pages = -(-len(array) // mmap.PAGESIZE)
    found = np.zeros(pages, np.uint8)
    address, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(len(array))
    assert ctypes.CDLL(None).mincore(address, size, ctypes.c_void_p(found.ctypes.data)) == 0
    return int(np.count_nonzero(found & 1)) * mmap.PAGESIZE


before, tokens = peak(), folder / "tokens"
request = RunRequest(str(folder / "graph"), settings=small, tokens=str(tokens), memory=bound)
result = execute_run(request, folder / "run")
trained = peak()
card, model = Run(folder / "run").load()
graph = Run(folder / "run").task().graph
blocks = predict_blocks(model, card.reader, graph, Workload(memory=bound, tokens=tokens))
rows = write_predictions(folder / "p.parquet", blocks, None, card.reader)
facts = {"route": result["token_route"], "training": trained - before, "predicting": peak() - trained, "rows": rows}
print(json.dumps({**facts, "cached": cached(tokens / "tokens.npy")}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is read from /proc")
def test_tokens_ten_times_the_bound(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((NUM_NODES, WIDTH), dtype=np.float32)
    graph = Graph(np.empty((2, 0), np.int64), features)
    nodes = random.permutation(NUM_NODES)
    split = Split(nodes[:40_000], nodes[40_000:46_000], nodes[46_000:])
    Task("wide", graph, random.integers(0, 3, NUM_NODES), [split]).save(tmp_path / "graph")
    write_tokens(graph.scaled(FeatureScaling.fit(features)), tmp_path / "tokens", order=ORDER)
    forget_pages(tmp_path / "tokens" / "tokens.npy")
    bound = token_bytes(NUM_NODES, ORDER, WIDTH) // 10
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(bound)]
    result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert result["route"] == "streamed"
    assert result["rows"] == NUM_NODES
    assert result["training"] <= bound, result
    assert result["predicting"] <= bound, result
    assert result["cached"] <= bound, result


@pytest.mark.skipif(sys.platform != "linux", reason="disk reads are counted by /proc")
def test_an_epoch_from_disk_is_not_much_slower(tmp_path: Path) -> None:
    """The benchmark asks for half the speed; here the margin is wide, as other processes disturb."""
    sizes = {"rows": 12_000, "order": 4, "features": 128, "hidden": 32}
    result = measure(tmp_path, argparse.Namespace(**sizes, basis="bernstein", threads=1, epochs=2))
    assert result["memory_bound"] * 10 <= result["token_bytes"]
    assert result["speed"] > 0.33, result
