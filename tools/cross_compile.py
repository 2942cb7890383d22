"""Compiles the native kernel for other platforms with clang, as the package ziglang brings it. Nothing of it is run.

A success says that the sources compile there, not that they work there.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

NATIVE = Path(__file__).parents[1] / "src" / "polyformer" / "native"
TARGETS = ["x86_64-linux-gnu", "aarch64-linux-gnu", "x86_64-macos", "aarch64-macos", "x86_64-windows-gnu"]
FLAGS = ["-O2", "-std=c++17", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]


def compile_source(source: Path, target: str, folder: Path) -> str | None:
    """Compile one file; returns what the compiler says against it, or None."""
    abi = runpy.run_path(str(NATIVE / "signatures.py"))["ABI"]
    command = [sys.executable, "-m", "ziglang", "c++", "-target", target, *FLAGS, f"-DPOLYFORMER_ABI={abi}"]
    outcome = subprocess.run(
        [*command, "-c", str(source), "-o", str(folder / f"{source.stem}.o")], capture_output=True, text=True
    )
    return outcome.stderr if outcome.returncode else None


def main() -> int:
    """Compile every source for every target; the exit code is 1 if one fails."""
    failures = 0
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            for source in sorted(NATIVE.glob("*.cpp")):
                complaint = compile_source(source, target, Path(folder))
                failures += complaint is not None
                print(f"{target} {source.name}: {'compiles' if complaint is None else complaint}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
