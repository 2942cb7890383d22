"""Compile the kernels with sanitizers and run their tests: `python tools/sanitize.py`, or `make sanitize`.

First the address and the undefined-behaviour sanitizer of GCC, then the thread sanitizer where clang is too. GCC's
thread sanitizer does not know the barriers of GCC's OpenMP runtime and reports races in correct code; LLVM's runtime
tells the sanitizer of its barriers through the tool Archer, which comes with it. So clang compiles the kernels, and the
sanitizer's runtime is GCC's, under which Python starts; under that of clang 14 it does not.

`--logs FOLDER` keeps what the tests and the sanitizers print.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-O1", "-g", "-std=c++17", "-fopenmp", "-fno-omit-frame-pointer", "-Wno-psabi", "-fPIC"]
TESTS = ["tests/native", "tests/propagation/test_kernel.py", "tests/nn/test_functional.py"]
# A sanitizer ends the process where memory for `new` runs out, so that the test of bad_alloc cannot run under it; the
# kernel that is asked for below may not fall back.
LEFT_OUT = (
    "tests/native/test_border.py::test_memory_that_runs_out_in_the_kernel_is_an_error_of_ours",
    "tests/propagation/test_kernel.py::test_fallback_says_so_once",
)


@dataclass(frozen=True)
class Sanitizer:
    """Attributes:
    name: what the report says.
    compiler: the compiler that has it.
    flags: its flags.
    linked: whether its runtime is linked, and not only loaded before Python.
    mark: bytes that stand in a library that was compiled with it.
    runtimes: libraries that must be loaded before Python.
    environment: its options; ``{place}`` is the folder for its reports.
    threads: how many threads the kernels use.
    """

    name: str
    compiler: str
    flags: tuple[str, ...]
    mark: bytes
    runtimes: tuple[str, ...]
    environment: dict[str, str]
    linked: bool = True
    threads: int | None = None


MEMORY = Sanitizer(
    "address and undefined behaviour",
    "g++",
    ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    b"__asan_",
    ("libasan.so", "libubsan.so"),
    {
        # Leaks of the interpreter are not ours; a bus error is answered by the program itself, as a test sees.
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:handle_sigbus=0:log_path={place}/report",
        "UBSAN_OPTIONS": "print_stacktrace=1:log_path={place}/report",
    },
)
THREADS = Sanitizer(
    "threads",
    "clang++",
    ("-fsanitize=thread",),
    b"__tsan_",
    ("libtsan.so",),
    {
        # Python and torch are not instrumented, so nothing is known of their locks.
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:halt_on_error=0:handle_sigbus=0:log_path={place}/report",
        "OMP_TOOL_LIBRARIES": "{archer}",
        "ARCHER_OPTIONS": "verbose=1",
    },
    linked=False,
    threads=4,
)


def compile_kernel(package: Path, sanitizer: Sanitizer) -> None:
    """Put a library with a sanitizer in the place of the usual one."""
    native = package / "native"
    sys.path.insert(0, str(package.parent))
    from polyformer.native import LIBRARY
    from polyformer.native.signatures import ABI

    library = native / LIBRARY.name
    library.unlink(missing_ok=True)
    objects = []
    for source in sorted(native.glob("*.cpp")):
        target = source.with_suffix(".o")
        command = [sanitizer.compiler, *FLAGS, *sanitizer.flags, f"-DPOLYFORMER_ABI={ABI}", "-c", str(source)]
        subprocess.run([*command, "-o", str(target)], check=True)
        objects.append(str(target))
    flags = sanitizer.flags if sanitizer.linked else ()
    link = [sanitizer.compiler, "-shared", "-fopenmp", *flags, *objects, "-o", str(library)]
    subprocess.run(link, check=True)
    assert sanitizer.mark in library.read_bytes(), "the library that is loaded is not the one with sanitizers"


def _library(compiler: str, name: str) -> str:
    """Where a compiler has a library; its bare name where it has none."""
    if shutil.which(compiler) is None:
        return name
    ended = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return str(Path(ended.stdout.strip()).resolve()) if "/" in ended.stdout else name


def run_tests(sanitizer: Sanitizer, logs: Path | None) -> int:
    """Compile with a sanitizer and run the tests; returns how many faults there were."""
    with tempfile.TemporaryDirectory(prefix="sanitize-") as place:
        shutil.copytree(ROOT / "src" / "polyformer", Path(place) / "polyformer")
        compile_kernel(Path(place) / "polyformer", sanitizer)
        options = {
            name: value.format(place=place, archer=_library("clang++", "libarcher.so"))
            for name, value in sanitizer.environment.items()
        }
        threads = {} if sanitizer.threads is None else {"OMP_NUM_THREADS": str(sanitizer.threads)}
        environment = os.environ | options | threads
        environment |= {
            "PYTHONPATH": f"{place}:{ROOT}",
            "LD_PRELOAD": " ".join(_library("g++", name) for name in sanitizer.runtimes),
            "POLYFORMER_KERNEL": "native",
        }
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:xdist", "-p", "no:cacheprovider"]
        command += [*(f"--deselect={test}" for test in LEFT_OUT), *TESTS]
        ended = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
        # pytest takes what a sanitizer prints, so that reports go to files
        reports = [path.read_text(errors="replace") for path in sorted(Path(place).glob("report*"))]
        summary = f"{sanitizer.name}: {len(reports)} reports; pytest ended with {ended.returncode}\n"
        text = f"{ended.stdout}{ended.stderr}{''.join(reports)}{summary}"
        sys.stdout.write(text)
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
            (logs / f"{sanitizer.name.replace(' ', '-')}.log").write_text(text)
        return ended.returncode or len(reports)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, default=None, help="a folder for what was printed")
    parser.add_argument("--only", choices=("memory", "threads"), default=None, help="one of the sanitizers")
    options = parser.parse_args()
    faults = 0
    for name, sanitizer in (("memory", MEMORY), ("threads", THREADS)):
        if options.only not in (None, name):
            continue
        if shutil.which(sanitizer.compiler) is None:
            sys.stdout.write(f"{sanitizer.name}: there is no {sanitizer.compiler}, so that this is left out.\n")
            continue
        faults += run_tests(sanitizer, options.logs)
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
