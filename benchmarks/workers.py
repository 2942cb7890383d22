"""How ``polyformer reproduce`` should use C cores: C runs of one thread at once, or runs of C threads one by one.

``python -m benchmarks.workers [--datasets a,b] [--bases monomial,chebyshev] [--epochs 40] [--json FILE]``
Both finish the same C runs with the published settings, cut after some epochs; the clock counts all of a run, from the
start of its process to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from polyformer.machine import num_cores


def start(dataset: str, basis: str, epochs: int, threads: int, out: Path) -> subprocess.Popen[bytes]:
    """A run that ends after so many epochs."""
    command = [sys.executable, "-m", "polyformer", "train", dataset, "--basis", basis, "--preset", "paper"]
    command += ["--set", f"epochs={epochs}", "--no-report", "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(dataset: str, basis: str, epochs: int) -> dict[str, Any]:
    """Seconds of C runs at once, and of the same one after another."""
    cores = num_cores()
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        together = [start(dataset, basis, epochs, 1, Path(directory) / f"together{i}") for i in range(cores)]
        codes = [process.wait() for process in together]
        middle = time.perf_counter()
        codes += [start(dataset, basis, epochs, cores, Path(directory) / f"turn{i}").wait() for i in range(cores)]
        ended = time.perf_counter()
    if any(codes):
        raise SystemExit(f"A run on {dataset} failed. Try: polyformer train {dataset} --basis {basis} --preset paper")
    return {"dataset": dataset, "basis": basis, "at_once": middle - began, "in_turn": ended - middle}


def main() -> None:
    """Print a Markdown table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="chameleon_filtered,citeseer,minesweeper,cs")
    parser.add_argument("--bases", default="monomial,chebyshev")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    print("| data set | basis | one thread each, at once, s | all threads, in turn, s | ratio |")
    print("|---|---|---|---|---|")
    for dataset in arguments.datasets.split(","):
        for basis in arguments.bases.split(","):
            row = measure(dataset, basis, arguments.epochs)
            rows.append(row)
            ratio = row["in_turn"] / row["at_once"]
            print(f"| {dataset} | {basis} | {row['at_once']:.1f} | {row['in_turn']:.1f} | {ratio:.2f} |", flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
