"""All measurements, one after the other: ``python -m benchmarks [--results DIR]``, an hour or so on two cores.

Prints Markdown and keeps it in ``RESULTS.md`` beside the JSON of each measurement.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.machine_facts import machine_facts


def main() -> int:
    """Run every benchmark in a process of its own; the others run on if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    folder = parser.parse_args().results
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory() as scratch, (folder / "RESULTS.md").open("w", encoding="utf-8") as report:

        def say(text: str) -> None:
            print(text, end="", flush=True)
            report.write(text)
            report.flush()

        say("# Measured\n\n" + "".join(f"- {name}: {value}\n" for name, value in machine_facts().items()))
        for title, command in commands(folder, Path(scratch)):
            say(f"\n## {title}\n\n")
            line = [sys.executable, "-m", *command]
            with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
                assert process.stdout is not None
                for text in process.stdout:
                    say(text)
            if process.returncode:
                failed.append(title)
                say(f"\nended with code {process.returncode}\n")
    return 1 if failed else 0


def commands(folder: Path, scratch: Path) -> list[tuple[str, list[str]]]:
    """(title, module and options) of each measurement."""
    both = []
    for threads in ("1", "2"):
        words = "one thread" if threads == "1" else "two threads"
        for module, title in (("tokens", "Tokens"), ("training", "Training with the published settings")):
            options = ["--threads", threads, "--json", str(folder / f"{module}-{threads}.json")]
            both.append((f"{title}, {words}", [f"benchmarks.{module}", *options]))
    growth = ["--json", str(folder / "growth.json"), "--plot", str(folder / "growth.svg")]
    score = ["--json", str(folder / "scores.json")]
    return [
        *both,
        ("Growth of time and memory", ["benchmarks.growth", *growth]),
        ("Time to the published score", ["benchmarks.scores", *score]),
        ("The cascade: epochs and memory", ["benchmarks.cascade", "--json", str(folder / "cascade.json")]),
        ("Tables with raw columns", ["benchmarks.tables", "--json", str(folder / "tables.json")]),
        ("Several runs on several cores", ["benchmarks.workers", "--json", str(folder / "workers.json")]),
        ("Streaming tokens from disk", ["benchmarks.streaming", "--json", str(folder / "streaming.json")]),
        (
            "Graphs larger than memory, a hundredth of the full size",
            ["benchmarks.disk", "--folder", str(scratch / "disk"), "--json", str(folder / "disk.json")],
        ),
        ("Tokens that follow a changed graph", ["benchmarks.updates", "--json", str(folder / "updates.json")]),
        ("New nodes, frozen and full", ["benchmarks.updates", "--new", "--json", str(folder / "new-nodes.json")]),
        ("Tasks on Ray against the disk engine", ["benchmarks.ray", "--json", str(folder / "ray.json")]),
    ]


if __name__ == "__main__":
    sys.exit(main())
