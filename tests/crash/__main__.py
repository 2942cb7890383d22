"""``LD_PRELOAD=layer.so python -m tests.crash --kills 1000 --errors 1000``: disturb every work at every moment.

The process imports everything once and forks a child for each disturbance. ``make crash`` compiles the layer first.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import itertools
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from polyformer.errors import PolyformerError
from tests.crash.work import WORKS, Work, fresh

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
DONE, REFUSED, FAULT, KILLED = 0, 10, 11, -9


def _child(act: Callable[[], object], folder: Path) -> int:
    """Run in a forked process: its end as a code; what went wrong stands in the folder's ``fault``."""
    number = os.fork()
    if number:
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    code = FAULT
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        act()
        code = DONE
    except (PolyformerError, SystemExit):
        code = REFUSED
    except BaseException:
        layer = ctypes.CDLL(None)
        layer.crash_arm(ctypes.c_long(-1), 0)
        Path(f"{folder}.fault").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _disturb(work: Work, good: Path, folder: Path, after: int, error: int, expected: str) -> tuple[str, bool]:
    """One disturbance; what is wrong afterwards ("" if nothing), and whether it came before the work's end."""
    layer = ctypes.CDLL(None)
    fresh(good, folder)
    fault = Path(f"{folder}.fault")
    fault.unlink(missing_ok=True)

    def disturbed() -> None:
        layer.crash_arm(ctypes.c_long(after), error)
        work.do(folder)

    code = _child(disturbed, folder)
    if code not in (DONE, REFUSED, KILLED):
        return f"ended with {code}: {fault.read_text()[-400:] if fault.exists() else ''}", True
    try:
        work.whole(folder)
        if (ended := _child(lambda: work.do(folder), folder)) != DONE:
            return f"taken up: ended with {ended}: {fault.read_text()[-400:] if fault.exists() else ''}", True
        same = work.whole(folder) == expected
    except (PolyformerError, AssertionError) as damaged:
        return f"damaged: {damaged}", True
    return ("" if same else "another result than without the disturbance"), code != DONE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--errors", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--works", nargs="*", default=list(WORKS))
    options = parser.parse_args()
    if not hasattr(ctypes.CDLL(None), "crash_arm"):
        sys.stderr.write("The layer is not loaded: run `make crash`.\n")
        return 2
    deadline, counts, wrong = time.monotonic() + options.seconds, Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="crash-") as place:
        moments: list[tuple[str, int, str]] = []
        for name in options.works:
            good, folder = Path(place) / name / "good", Path(place) / name / "work"
            good.mkdir(parents=True)
            assert _child(lambda work=WORKS[name], good=good: work.prepare(good), good) == DONE, name
            fresh(good, folder)
            seen = Path(place) / name / "seen"

            def undisturbed(name: str = name, folder: Path = folder, seen: Path = seen) -> None:
                layer = ctypes.CDLL(None)
                layer.crash_arm(ctypes.c_long(-1), 0)
                WORKS[name].do(folder)
                seen.write_text(str(layer.crash_seen()))

            assert _child(undisturbed, folder) == DONE, Path(f"{folder}.fault").read_text()
            expected = WORKS[name].whole(folder)
            moments += [(name, after, expected) for after in range(int(seen.read_text()))]
        for kind, wanted in (("kills", options.kills), ("errors", options.errors)):
            step = max(1, len(moments) // max(1, wanted))
            for turn, (name, after, expected) in enumerate(itertools.cycle(moments[::step])):
                if counts[kind] >= wanted or turn > 20 * wanted or time.monotonic() > deadline:
                    break
                error = 0 if kind == "kills" else ERRORS[(turn // len(moments) + after) % len(ERRORS)]
                good, folder = Path(place) / name / "good", Path(place) / name / "work"
                fault, came = _disturb(WORKS[name], good, folder, after, error, expected)
                counts[kind] += came
                counts[f"{kind} of {name}"] += came
                if fault:
                    wrong.append(f"{name}, {kind[:-1]} {error} after {after} operations: {fault}")
                    sys.stdout.write(f"{wrong[-1]}\n")
    sys.stdout.write(f"{len(moments)} moments of {len(options.works)} works; {dict(counts)}; {len(wrong)} wrong\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
