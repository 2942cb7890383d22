"""Seconds per epoch of one process with two threads, of two processes with one each, and of two workers on Ray.

``python -m benchmarks.distributed [--data NAME] [--batch-size 256,4096] [--epochs 5] [--json FILE]``
The same command each time, in alternating processes; the least of the epochs after the first counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WAYS = {
    "1 process × 2 threads": (2, ["-m", "polyformer", "train"], []),
    "2 processes × 1 thread, torchrun": (
        1,
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "polyformer", "train"],
        [],
    ),
    "2 workers × 1 thread, Ray": (1, ["-m", "polyformer", "train"], ["--engine", "ray", "--workers", "2"]),
}


def seconds_per_epoch(way: str, data: str, batch_size: str, epochs: int, out: Path) -> float:
    """Run the command and read what it recorded."""
    threads, program, options = WAYS[way]
    settings = ["--set", f"batch_size={batch_size}", "--set", f"epochs={epochs + 1}", "--set", "patience=1000"]
    subprocess.run(
        [sys.executable, *program, data, "--device", "cpu", "--no-report", "--out", str(out), *settings, *options],
        env=os.environ | {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return min(float(record["seconds"]) for record in records[1:])


def main() -> None:
    """Print a table, one row a batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="minefield:width=300,height=300")
    parser.add_argument("--batch-size", default="256,4096")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{options.data}\n\n| batch size | {' | '.join(WAYS)} |\n|---|{'---|' * len(WAYS)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for size in options.batch_size.split(","):
            runs = {
                way: seconds_per_epoch(way, options.data, size, options.epochs, Path(folder) / f"{size}-{i}")
                for i, way in enumerate(WAYS)
            }
            rows.append({"data": options.data, "batch_size": int(size), "seconds": runs})
            print(f"| {size} | {' | '.join(f'{seconds:.2f} s' for seconds in runs.values())} |", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
