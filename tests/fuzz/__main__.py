"""``python -m tests.fuzz --seconds 3600``: fuzz every reader; findings are printed, and kept with ``--keep``.

The readers are shared out among processes, so that a crash is a finding and not the end.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.fuzzer import fuzz
from tests.fuzz.readers import COMMANDS, READERS


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _work(options: argparse.Namespace) -> int:
    """Fuzz the named readers in this process; prints a line of JSON for each."""
    faulthandler.enable()
    found, deadline = 0, time.monotonic() + options.seconds
    for place, name in enumerate(options.readers):
        _say(json.dumps({"begin": name}))
        share = (deadline - time.monotonic()) / (len(options.readers) - place)
        tally = fuzz([name], range(options.first, options.first + options.inputs), share, options.keep)
        about = {"reader": name, "inputs": tally.inputs[name], "refused": tally.refused[name], "kinds": tally.kinds}
        _say(json.dumps(about | {"findings": [str(finding) for finding in tally.findings]}))
        found += len(tally.findings)
    return 1 if found else 0


def _collect(text: str, code: int) -> list[dict[str, Any]]:
    """What a process said of its readers; a reader in which it died has that as its finding."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    results = [line for line in lines if "reader" in line]
    if code not in (0, 1):
        last = lines[-1].get("begin", "the first reader") if lines else "the first reader"
        finding = f"{last}: the process ended with code {code}"
        results.append({"reader": last, "inputs": 0, "refused": 0, "kinds": {}, "findings": [finding]})
    return results


def _summary(results: list[dict[str, Any]], options: argparse.Namespace, minutes: float) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    for result in results:
        kinds.update(result["kinds"])
    return {
        "inputs": sum(result["inputs"] for result in results),
        "refused": sum(result["refused"] for result in results),
        "findings": [finding for result in results for finding in result["findings"]],
        "first seed": options.first,
        "minutes": round(minutes, 1),
        "readers": {result["reader"]: [result["inputs"], result["refused"]] for result in results},
        "kinds of mutation": dict(sorted(kinds.items())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", help="names of readers; all by default")
    parser.add_argument("--commands", action="store_true", help="fuzz the verbs of the command line instead of readers")
    parser.add_argument("--inputs", type=int, default=10**9, help="at most so many inputs for each reader")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most so many seconds for all readers")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2, help="processes; 0 works in this one")
    parser.add_argument("--keep", type=Path, default=None, help="a folder for inputs that are findings")
    parser.add_argument("--record", type=Path, default=None, help="a JSON file for the counts")
    options = parser.parse_args()
    options.readers = options.readers or list(COMMANDS if options.commands else READERS)
    if options.workers == 0:
        return _work(options)
    began = time.monotonic()
    shared = ["--workers", "0", "--inputs", str(options.inputs), "--first", str(options.first)]
    shared += ["--seconds", str(options.seconds)] + (["--keep", str(options.keep)] if options.keep else [])
    parts = [options.readers[i :: options.workers] for i in range(options.workers)]
    children = [
        subprocess.Popen([sys.executable, "-m", "tests.fuzz", *part, *shared], stdout=subprocess.PIPE, text=True)
        for part in parts
        if part
    ]
    results = [result for child in children for result in _collect(child.communicate()[0], child.returncode)]
    summary = _summary(results, options, (time.monotonic() - began) / 60)
    for name, (inputs, refused) in summary["readers"].items():
        _say(f"{name}: {inputs:,} inputs, {refused:,} refused")
    for kind, count in summary["kinds of mutation"].items():
        _say(f"{kind}: {count:,} times")
    for finding in summary["findings"]:
        _say(f"finding: {finding}")
    minutes, findings = summary["minutes"], len(summary["findings"])
    _say(f"{summary['inputs']:,} inputs of {len(results)} readers in {minutes:.0f} min, {findings} findings")
    if options.record is not None:
        options.record.write_text(json.dumps(summary, indent=2) + "\n")
    return 1 if summary["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
