"""Tokens of order 10 with the row-major (N, K+1, d) output: ours against scipy CSR, torch CSR and torch COO.

``python -m benchmarks.tokens [--threads 1] [--repeats 3] [--json FILE]``; interleaved in one process, best of several.
The others run the same Chebyshev recurrence with the normalised operator written out, and fill a new output of the same
layout. Before each turn as much memory as the output takes is touched and freed, so that nobody pays for pages that the
machine has yet to find. The bandwidth of ours counts what the recurrence must move (per hop: indices, one gathered row
per entry, the two buffers and the output), as a share of what copying an array reaches. The gathers count the cache
lines of the gathered rows, as a share of those per second on a random graph with as many nodes, where no line is near
another: above 1 where neighbours share lines.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine_speed import lines_per_second
from polyformer.datasets import load_dataset
from polyformer.graph import Graph
from polyformer.machine_speed import CACHE_LINE
from polyformer.operators import Operator
from polyformer.propagation.kernel import FASTEST_WIDTH
from polyformer.tokens import compute_tokens, token_bytes

ORDER = 10
GRAPHS = {"ogbn-arxiv-graph": 128, "web-google": 64}


def recurrence(product: Callable[[Any], Any], x: Any) -> None:
    """T_{k+1} = 2 M T_k - T_{k-1} with M = -P, each order copied into its place of the output."""
    out = np.empty((x.shape[0], ORDER + 1, x.shape[1]), np.float32)
    previous, current = x, -product(x)
    out[:, 0], out[:, 1] = previous, current
    for k in range(2, ORDER + 1):
        previous, current = current, -2 * product(current) - previous
        out[:, k] = current


def contenders(graph: Graph) -> dict[str, Callable[[], None]]:
    """Name -> a function that computes the tokens once."""
    features = np.asarray(graph.features)
    matrix = Operator(graph).to_scipy()
    dense = torch.from_numpy(features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        csr = torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr),
            torch.from_numpy(matrix.indices),
            torch.from_numpy(matrix.data),
            matrix.shape,
        )
        coo = csr.to_sparse_coo().coalesce()
    return {
        "ours": lambda: compute_tokens(graph, "chebyshev", ORDER),
        "bernstein": lambda: compute_tokens(graph, "bernstein", ORDER),
        "scipy CSR": lambda: recurrence(lambda x: matrix @ x, features),
        "torch CSR": lambda: recurrence(lambda x: csr @ x, dense),
        "torch COO": lambda: recurrence(lambda x: torch.spmm(coo, x), dense),
    }


def best_times(functions: dict[str, Callable[[], None]], repeats: int, output_bytes: int) -> dict[str, float]:
    """The best of several rounds, the contenders taking turns."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            np.ones(output_bytes // 8)
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def copy_bandwidth() -> float:
    """Bytes a second that copying 512 MiB reads and writes."""
    source = torch.ones(1 << 27)
    target = torch.empty_like(source)
    target.copy_(source)
    start = time.perf_counter()
    for _ in range(3):
        target.copy_(source)
    return 3 * 8 * source.numel() / (time.perf_counter() - start)


def moved_bytes(graph: Graph) -> int:
    """What the recurrence reads and writes in all hops and blocks."""
    columns = graph.num_features
    blocks = -(-columns // FASTEST_WIDTH)
    per_hop = 4 * len(graph.indices) * (columns + blocks) + 4 * graph.num_nodes * columns * 3
    return ORDER * per_hop


def gathered_lines(graph: Graph) -> int:
    """Cache lines that the recurrence gathers in all hops."""
    return ORDER * len(graph.indices) * -(-graph.num_features * 4 // CACHE_LINE)


def main() -> None:
    """Print a Markdown table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--graphs", default=",".join(GRAPHS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    copy = copy_bandwidth()
    rows = []
    print(f"threads {arguments.threads}, copying {copy / 1e9:.1f} GB/s")
    print(
        "| graph | columns | ours s | scipy CSR | torch CSR | torch COO | Bernstein / Chebyshev | of copy | gathers |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in arguments.graphs.split(","):
        bare = load_dataset(name).graph
        random = np.random.default_rng(0).standard_normal((bare.num_nodes, GRAPHS[name]), dtype=np.float32)
        graph = bare.with_features(random)
        best = best_times(contenders(graph), arguments.repeats, token_bytes(graph.num_nodes, ORDER, GRAPHS[name]))
        ratios = {key: best[key] / best["ours"] for key in best}
        share = moved_bytes(graph) / best["ours"] / copy
        gathers = gathered_lines(graph) / best["ours"] / (lines_per_second(graph.num_nodes) * arguments.threads)
        rows.append(
            {
                "graph": name,
                "threads": arguments.threads,
                "seconds": best,
                "ratios": ratios,
                "share": share,
                "gather_share": gathers,
            }
        )
        print(
            f"| {name} | {GRAPHS[name]} | {best['ours']:.2f} | {ratios['scipy CSR']:.1f}× | "
            f"{ratios['torch CSR']:.1f}× | {ratios['torch COO']:.1f}× | {ratios['bernstein']:.2f} | {share:.2f} | "
            f"{gathers:.2f} |",
            flush=True,
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
