"""``LD_PRELOAD=layer.so python -m tests.crash --kills 1000``: disturb every work at every moment.

The process imports everything once and forks a child for each disturbance. ``make crash`` compiles the layer first.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.crash.disturbance import DISK, KINDS, LEAST_BYTES, Moments, Outcome, disturb, is_loaded, warm_up
from tests.crash.work import WORKS

Case = tuple[str, str, int]
"""Work, kind of disturbance, and how many operations go well before it."""


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _cases(moments: dict[str, Moments], group: str, wanted: int) -> list[Case]:
    """So many disturbances of a group, fewer if there are no more: operations of the disk first, then allocations."""
    kinds = [kind for kind in KINDS if KINDS[kind].group == group]
    on_disk = [kind for kind in kinds if KINDS[kind].counter == DISK]
    every = [(name, kind, after) for name in moments for after in range(moments[name].disk) for kind in on_disk]
    cases = _evenly(every, wanted)
    share = -(-max(0, wanted - len(cases)) // len(moments))
    for kind in kinds:
        if kind not in on_disk:
            for name in moments:
                cases += _evenly([(name, kind, after) for after in range(moments[name].memory)], share)
    return cases


def _evenly(cases: list[Case], wanted: int) -> list[Case]:
    """So many cases, spread over all of them."""
    if len(cases) <= wanted:
        return cases
    return [cases[i * len(cases) // wanted] for i in range(wanted)]


def _all_cases(moments: dict[str, Moments], options: argparse.Namespace) -> list[Case]:
    """The cases of all groups in a random order, the same in every run."""
    cases = [
        case for group in ("kills", "errors", "allocations") for case in _cases(moments, group, vars(options)[group])
    ]
    random.Random(0).shuffle(cases)
    return cases


def _disturb(case: Case, place: str, expected: str) -> Outcome:
    name, kind, after = case
    return disturb(name, KINDS[kind], after, Path(place) / name, expected)


def _run(options: argparse.Namespace, place: str) -> dict[str, Any]:
    moments = {name: warm_up(name, Path(place) / name) for name in options.works}
    for name, about in moments.items():
        _say(f"{name}: {about.disk} operations of the disk, {about.memory} allocations of {LEAST_BYTES} bytes or more")
    log = options.log or Path(place) / "log.jsonl"
    log.touch()
    known = {tuple(json.loads(line)[:3]) for line in log.read_text().splitlines()}
    cases = [case for case in _all_cases(moments, options) if case not in known]
    _say(f"{len(known):,} disturbances are in the log, {len(cases):,} are to come")
    gc.freeze()  # children that collect garbage then copy fewer pages
    context, deadline = multiprocessing.get_context("fork"), time.monotonic() + options.seconds
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool, log.open("a") as file:
        tasks = [(case, pool.submit(_disturb, case, place, moments[case[0]].expected)) for case in cases]
        for case, task in tasks:
            if time.monotonic() > deadline:
                task.cancel()
            if task.cancelled():
                continue
            outcome = task.result()
            file.write(json.dumps([*case, outcome.end, outcome.fault]) + "\n")
            file.flush()
            if outcome.fault:
                _say(f"{case}: {outcome.fault}")
    return _summary([json.loads(line) for line in log.read_text().splitlines()], moments)


def _summary(lines: list[list[Any]], moments: dict[str, Moments]) -> dict[str, Any]:
    counts: dict[str, Counter[str]] = {"kills": Counter(), "errors": Counter(), "allocations": Counter()}
    for name, kind, _, end, _ in lines:
        counts[KINDS[kind].group].update([name, kind, end])
    return {
        "disturbances": {group: sum(count[kind] for kind in KINDS) for group, count in counts.items()},
        "counts": counts,
        "moments": {name: {"disk": about.disk, "memory": about.memory} for name, about in moments.items()},
        "wrong": [
            f"{name}, {kind} after {after} operations: {fault}" for name, kind, after, _, fault in lines if fault
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--errors", type=int, default=600, help="failing operations of the disk")
    parser.add_argument("--allocations", type=int, default=400, help="failing allocations")
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--workers", type=int, default=2, help="processes that disturb at a time")
    parser.add_argument("--works", nargs="*", default=list(WORKS), choices=list(WORKS))
    parser.add_argument(
        "--log", type=Path, default=None, help="a file of outcomes; what stands in it is not done again"
    )
    parser.add_argument("--record", type=Path, default=None, help="a JSON file for the counts")
    options = parser.parse_args()
    if not is_loaded():
        sys.stderr.write("The layer is not loaded: run `make crash`.\n")
        return 2
    memory = Path("/dev/shm")  # a flush to a real disk takes longer than most works
    with tempfile.TemporaryDirectory(prefix="crash-", dir=memory if os.access(memory, os.W_OK) else None) as place:
        record = _run(options, place)
    for group, count in record["counts"].items():
        _say(f"{group}: {dict(count)}")
    _say(f"{record['disturbances']}; {len(record['wrong'])} wrong")
    if options.record is not None:
        options.record.write_text(json.dumps(record, indent=2) + "\n")
    return 1 if record["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
