"""Compile the kernels with sanitizers and run their tests: `python tools/sanitize.py`, or `make sanitize`.

Address and undefined-behaviour sanitizer with GCC. The thread sanitizer is left out: it does not know the barriers of
GCC's OpenMP runtime and reports races in correct code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-O1", "-g", "-std=c++17", "-fopenmp", "-fno-omit-frame-pointer", "-Wno-psabi"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
TESTS = ["tests/native", "tests/propagation/test_kernel.py", "tests/nn/test_functional.py"]
# The sanitizer ends the process where memory for `new` runs out, so that the test of bad_alloc cannot run under it; the
# kernel that is asked for below may not fall back.
LEFT_OUT = (
    "tests/native/test_border.py::test_memory_that_runs_out_in_the_kernel_is_an_error_of_ours",
    "tests/propagation/test_kernel.py::test_fallback_says_so_once",
)


def compile_kernel(package: Path) -> None:
    """Put a library with sanitizers in the place of the usual one."""
    native = package / "native"
    sys.path.insert(0, str(package.parent))
    from polyformer.native.signatures import ABI

    sources = sorted(native.glob("*.cpp"))
    from polyformer.native import LIBRARY

    library = native / LIBRARY.name
    library.unlink(missing_ok=True)
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
    assert b"__asan_" in library.read_bytes(), "the library that is loaded is not the one with sanitizers"


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
            # Leaks of the interpreter are not ours; a bus error is answered by the program itself, as a test sees.
            "ASAN_OPTIONS": f"detect_leaks=0:halt_on_error=1:handle_sigbus=0:log_path={place}/report",
            "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={place}/report",
            "POLYFORMER_KERNEL": "native",
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            *(f"--deselect={test}" for test in LEFT_OUT),
            *TESTS,
        ]
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        reports = [path.read_text(errors="replace") for path in sorted(Path(place).glob("report*"))]
        # pytest takes what a sanitizer prints, so that reports go to files
        sys.stdout.write("".join(reports) + f"sanitizers: {len(reports)} reports; pytest ended with {code}\n")
        return code or len(reports)


if __name__ == "__main__":
    sys.exit(main())
