"""Compile the kernels with sanitizers and run their tests: `python tools/sanitize.py`, or `make sanitize`.

Address and undefined-behaviour sanitizer with GCC. The thread sanitizer is left out: it does not know the barriers of
GCC's OpenMP runtime and reports races in correct code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-O1", "-g", "-std=c++17", "-fopenmp", "-fno-omit-frame-pointer", "-Wno-psabi"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
TESTS = ["tests/native", "tests/propagation/test_kernel.py", "tests/nn/test_functional.py"]


def compile_kernel(package: Path) -> None:
    """Put a library with sanitizers in the place of the usual one."""
    native = package / "native"
    sys.path.insert(0, str(package.parent))
    from polyformer.native.signatures import ABI

    sources = sorted(native.glob("*.cpp"))
    library = native / f"_kernel{sysconfig.get_config_var('EXT_SUFFIX')}"
    objects = []
    for source in sources:
        target = source.with_suffix(".o")
        command = [
            "g++",
            *FLAGS,
            *SANITIZERS,
            f"-DPOLYFORMER_ABI={ABI}",
            "-fPIC",
            "-c",
            str(source),
            "-o",
            str(target),
        ]
        subprocess.run(command, check=True)
        objects.append(str(target))
    subprocess.run(["g++", "-shared", "-fopenmp", *SANITIZERS, *objects, "-o", str(library)], check=True)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sanitize-") as place:
        shutil.copytree(ROOT / "src" / "polyformer", Path(place) / "polyformer")
        compile_kernel(Path(place) / "polyformer")
        runtimes = [
            subprocess.run(
                ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
            ).stdout.strip()
            for name in ("libasan.so", "libubsan.so")
        ]
        environment = os.environ | {
            "PYTHONPATH": f"{place}:{ROOT}",
            "LD_PRELOAD": " ".join(runtimes),
            "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "POLYFORMER_KERNEL": "native",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *TESTS]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
