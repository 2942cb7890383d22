"""Graphs larger than memory: make one up, compute tokens of its labelled nodes, train on them, predict.

``python -m benchmarks.disk [--scale 0.01] [--engines disk,memory] [--memory 18GiB] [--folder DIR] [--json FILE]``

Scale 1 is the size of ogbn-papers100M: 111,059,956 nodes, 1,615,685,872 edges, 128 float16 features, 1.5 million
labelled nodes. The engine ``disk-float16`` is the disk engine with buffers in half precision. To compare it with
``disk`` in blocks as narrow as at full size: ``--scale 0.01 --engines disk,disk-float16 --memory 600MiB``. Every
stage is a ``polyformer`` command of its own; its wall time, CPU time, peak resident memory (anonymous and in all) and
disk use are printed and, as JSON, written to FILE. A stage whose output is there already is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NODES, EDGES, LABELLED = 111_059_956, 1_615_685_872, 1_546_782
ORDER = 4


def run_stage(name: str, arguments: list[str], folder: Path) -> dict[str, Any]:
    """Run a command, its lines passed on with the time, and watch its memory and the disk."""
    command = [sys.executable, "-m", "polyformer", *arguments]
    print(f"[{time.strftime('%H:%M:%S')}] {name}: polyformer {' '.join(arguments)}", flush=True)
    start, log, before = time.monotonic(), folder / f"{name}.log", cpu_seconds()
    peak, largest_disk = {"VmHWM": 0, "RssAnon": 0}, 0
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        while True:
            try:
                process.wait(timeout=1.0)
                break
            except subprocess.TimeoutExpired:
                status = Path(f"/proc/{process.pid}/status").read_text()
                for key in peak:
                    line = re.search(rf"{key}:\s+(\d+)", status)
                    peak[key] = max(peak[key], 1024 * int(line[1]) if line else 0)
                largest_disk = max(largest_disk, disk_use(folder))
    seconds = time.monotonic() - start
    for line in log.read_text().splitlines()[-4:]:
        print(f"    {line}")
    if process.returncode:
        sys.exit(f"{name} failed with code {process.returncode}; see {log}")
    print(
        f"[{time.strftime('%H:%M:%S')}] {name}: {seconds:.0f} s, peak resident {peak['VmHWM'] / 2**30:.2f} GiB "
        f"(anonymous {peak['RssAnon'] / 2**30:.2f}), disk {max(largest_disk, disk_use(folder)) / 1e9:.1f} GB",
        flush=True,
    )
    return {
        "stage": name,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds() - before, 1),
        "peak_resident_bytes": peak["VmHWM"],
        "peak_anonymous_bytes": peak["RssAnon"],
        "disk_bytes": max(largest_disk, disk_use(folder)),
    }


def cpu_seconds() -> float:
    """Of all stages that have ended."""
    usage = os.times()
    return usage.children_user + usage.children_system


def disk_use(folder: Path) -> int:
    """Bytes on disk of everything under a folder, unfinished files too."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += 512 * os.stat(os.path.join(place, name)).st_blocks
            except FileNotFoundError:
                continue
    return total


def main() -> None:
    """Run the stages one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--engines", default="disk,memory")
    parser.add_argument("--memory", default="18GiB")
    parser.add_argument("--folder", type=Path, default=Path("large-run"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    folder, scale = arguments.folder, arguments.scale
    folder.mkdir(parents=True, exist_ok=True)
    graph = folder / "graph"
    spec = (
        f"synthetic:nodes={round(NODES * scale)},edges={round(EDGES * scale)},features=128,classes=172,"
        f"labelled={round(LABELLED * scale)},dtype=float16"
    )
    # A run that goes on keeps what its earlier stages took.
    known = arguments.json is not None and arguments.json.exists()
    stages = json.loads(arguments.json.read_text())["stages"] if known else []
    if not graph.exists():
        stages.append(run_stage("generate", ["import", spec, str(graph)], folder))
    for engine in arguments.engines.split(","):
        out = folder / f"tokens-{engine}"
        kind, _, buffers = engine.partition("-")
        options = [
            "--engine",
            kind,
            *(["--buffers", buffers] if buffers else []),
            "--memory",
            arguments.memory,
            "--order",
            str(ORDER),
            "--nodes",
            "labelled",
        ]
        if not out.exists():
            stages.append(run_stage(f"tokens-{engine}", ["tokens", str(graph), *options, "--out", str(out)], folder))
    tokens, limit = folder / f"tokens-{arguments.engines.split(',')[0]}", ["--memory", arguments.memory]
    given = ["--tokens", str(tokens), *limit]
    run, predictions = folder / "run", folder / "predictions.parquet"
    if not run.exists():
        stages.append(
            run_stage(
                "train", ["train", str(graph), *given, "--no-report", "--set", "epochs=1", "--out", str(run)], folder
            )
        )
    if not predictions.exists():
        wanted = ["--nodes", "labelled", *given, "--out", str(predictions)]
        stages.append(run_stage("predict", ["predict", str(run), *wanted], folder))
    manifest = json.loads((graph / "manifest.json").read_text())
    counts = {key: manifest[key] for key in ("num_nodes", "num_edges", "num_entries", "num_features")}
    result = {"scale": scale, "order": ORDER, "memory": arguments.memory, "graph": counts, "stages": stages}
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
