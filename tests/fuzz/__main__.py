"""``python -m tests.fuzz --seconds 3600``: fuzz every reader; findings are printed, and kept with ``--keep``.

The readers are shared out among processes, so that a crash is a finding and not the end.
"""

from __future__ import annotations

import argparse
import faulthandler
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.fuzzer import fuzz
from tests.fuzz.readers import READERS


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _work(options: argparse.Namespace) -> int:
    """Fuzz the named readers in this process."""
    faulthandler.enable()
    found, share = 0, options.seconds / len(options.readers)
    for name in options.readers:
        _say(f"begin {name}")
        tally = fuzz([name], range(options.first, options.first + options.inputs), share, options.keep)
        count, refused = tally.inputs[name], tally.refused[name]
        _say(f"{name}: {count:,} inputs, {refused:,} refused, {len(tally.findings)} findings")
        for finding in tally.findings[:20]:
            _say(f"  {finding}")
        found += len(tally.findings)
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", default=list(READERS), help="names of readers; all by default")
    parser.add_argument("--inputs", type=int, default=10**9, help="at most so many inputs for each reader")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most so many seconds for all readers")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2, help="processes; 0 works in this one")
    parser.add_argument("--keep", type=Path, default=None, help="a folder for inputs that are findings")
    options = parser.parse_args()
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
    inputs, failed = 0, 0
    for child in children:
        text = child.communicate()[0]
        lines = [line for line in text.splitlines() if not line.startswith("begin ")]
        inputs += sum(int(line.split(": ")[1].split()[0].replace(",", "")) for line in lines if " inputs, " in line)
        _say("\n".join(lines))
        if child.returncode not in (0, 1):
            last = [line for line in text.splitlines() if line.startswith("begin ")][-1]
            _say(f"  the process ended with code {child.returncode} after: {last}")
        failed += child.returncode != 0
    _say(f"{inputs:,} inputs of {len(options.readers)} readers in {(time.monotonic() - began) / 60:.0f} min")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
