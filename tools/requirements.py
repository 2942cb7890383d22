"""Prints what pyproject.toml requires, one line each: to build the package, to run it, and for the extras named.

python tools/requirements.py report
    the requirements with their lower bounds, for ``pip install -r``
python tools/requirements.py --lowest --keep torch report
    constraints for ``pip install -c``: each requirement at its lower bound; torch and all other packages as
    constraints.txt pins them
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
BOUNDED = re.compile(r"(?P<name>[\w.-]+)(\[[\w,-]+\])?>=(?P<version>[\w.]+)")
PINNED = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.+]+)")


def requirements(extras: list[str]) -> list[str]:
    """What building, running and the extras require, each line once; an extra of our own stands for what it holds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = project["project"]["optional-dependencies"]
    own = re.compile(rf"{project['project']['name']}\[(?P<extras>[\w,-]+)\]")
    lines = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    waiting = list(extras)
    while waiting:
        extra = waiting.pop(0)
        if extra not in declared:
            sys.exit(f"pyproject.toml has no extra '{extra}'. Choose from: {', '.join(declared)}.")
        for line in declared[extra]:
            if reference := own.fullmatch(line):
                waiting.extend(reference["extras"].split(","))
            else:
                lines.append(line)
    return list(dict.fromkeys(lines))


def lowest(lines: list[str], kept: list[str]) -> list[str]:
    """Every requirement at its lower bound but those ``kept``, and every other pin of constraints.txt."""
    bounds = {}
    for line in lines:
        bound = BOUNDED.fullmatch(line)
        if bound is None:
            sys.exit(f"A requirement must read name>=version. Got '{line}' in pyproject.toml.")
        bounds[normalised(bound["name"])] = f"{bound['name']}=={bound['version']}"
    for name in kept:
        bounds.pop(normalised(name), None)
    pins = PINNED.finditer((ROOT / "constraints.txt").read_text())
    return [*bounds.values(), *(pin[0] for pin in pins if normalised(pin["name"]) not in bounds)]


def normalised(name: str) -> str:
    """The name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", help="extras of pyproject.toml")
    parser.add_argument("--lowest", action="store_true", help="print constraints: each requirement at its lower bound")
    parser.add_argument("--keep", action="append", default=[], help="a package that stays as constraints.txt pins it")
    options = parser.parse_args()
    direct = requirements(options.extras)
    print("\n".join(lowest(direct, options.keep) if options.lowest else direct))
