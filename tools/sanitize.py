"""Compile the kernels with sanitizers and run their tests: `python tools/sanitize.py`, or `make sanitize`.

First the address and the undefined-behaviour sanitizer, then that of threads, all of GCC. The thread sanitizer does not
know the barriers of GCC's OpenMP runtime and reports races in correct code, so that the kernels run on
`openmp_on_threads.c` instead, which makes the same calls with plain threads. A sum that races on purpose must be
reported first, and one that does not must not.

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
FLAGS = ["-O1", "-g", "-fopenmp", "-fno-omit-frame-pointer", "-Wno-psabi", "-fPIC"]
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
    flags: flags of the compiler.
    runtimes: libraries that must be loaded before Python.
    environment: options of the sanitizer; ``{place}`` is the folder for its reports.
    """

    name: str
    flags: tuple[str, ...]
    runtimes: tuple[str, ...]
    environment: dict[str, str]


MEMORY = Sanitizer(
    "address and undefined behaviour",
    ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    ("libasan.so", "libubsan.so"),
    {
        # Leaks of the interpreter are not ours; a bus error is answered by the program itself, as a test sees.
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:handle_sigbus=0:log_path={place}/report",
        "UBSAN_OPTIONS": "print_stacktrace=1:log_path={place}/report",
    },
)
THREADS = Sanitizer(
    "threads",
    ("-fsanitize=thread",),
    ("libtsan.so",),
    {
        # Python and torch are not compiled with it, so that nothing is known of their locks.
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:handle_sigbus=0:log_path={place}/report",
        "OMP_NUM_THREADS": "4",
    },
)


def compile_kernel(package: Path, sanitizer: Sanitizer) -> Path:
    """Put a library with a sanitizer in the place of the usual one."""
    native = package / "native"
    sys.path.insert(0, str(package.parent))
    from polyformer.native import LIBRARY
    from polyformer.native.signatures import ABI

    library = native / LIBRARY.name
    library.unlink(missing_ok=True)
    objects = []
    runtime = [ROOT / "tools" / "openmp_on_threads.c"] if sanitizer is THREADS else []
    for source in (*sorted(native.glob("*.cpp")), *runtime):
        target = native / f"{source.stem}.o"
        compiler = ["g++", "-std=c++17"] if source.suffix == ".cpp" else ["gcc"]
        command = [*compiler, *FLAGS, *sanitizer.flags, f"-DPOLYFORMER_ABI={ABI}", "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True)
        objects.append(str(target))
    # The kernels must call what they are linked with, although torch has loaded the real runtime before.
    openmp = ["-pthread", "-Wl,-Bsymbolic"] if runtime else ["-fopenmp"]
    subprocess.run(["g++", "-shared", *openmp, *sanitizer.flags, *objects, "-o", str(library)], check=True)
    return library


def _runtime(name: str) -> str:
    """Where GCC has a library; its bare name, which cannot be loaded, where it has none."""
    ended = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return str(Path(ended.stdout.strip()).resolve()) if "/" in ended.stdout else name


def _environment(sanitizer: Sanitizer, place: Path) -> dict[str, str]:
    options = {name: value.format(place=place) for name, value in sanitizer.environment.items()}
    runtimes = " ".join(_runtime(name) for name in sanitizer.runtimes)
    shared = {"PYTHONPATH": f"{place}:{ROOT}", "LD_PRELOAD": runtimes, "POLYFORMER_KERNEL": "native"}
    return os.environ | options | shared


def _reports(place: Path) -> list[str]:
    """What the sanitizers found; in files, as pytest takes what is printed."""
    return [path.read_text(errors="replace") for path in sorted(place.glob("report*"))]


def _sees_races(library: Path, place: Path) -> bool:
    """Whether the sum that races is reported, and that in turn is not."""
    found = []
    for function in ("polyformer_racing_sum", "polyformer_sum_in_turn"):
        code = f"import ctypes, torch; ctypes.CDLL({str(library)!r}).{function}()"
        subprocess.run([sys.executable, "-c", code], env=_environment(THREADS, place), check=False)
        found.append(len(_reports(place)))
        for path in place.glob("report*"):
            path.unlink()
    return found[0] > 0 and found[1] == 0


def run_tests(sanitizer: Sanitizer, logs: Path | None) -> int:
    """Compile with a sanitizer and run the tests; returns how many faults there were."""
    with tempfile.TemporaryDirectory(prefix="sanitize-") as folder:
        place = Path(folder)
        shutil.copytree(ROOT / "src" / "polyformer", place / "polyformer")
        library = compile_kernel(place / "polyformer", sanitizer)
        if sanitizer is THREADS and not _sees_races(library, place):
            sys.stdout.write("threads: the sanitizer does not tell a race from none here; its tests are left out.\n")
            return 1
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:xdist", "-p", "no:cacheprovider"]
        command += [*(f"--deselect={test}" for test in LEFT_OUT), *TESTS]
        environment = _environment(sanitizer, place)
        ended = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
        reports = _reports(place)
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
    chosen = {"memory": MEMORY, "threads": THREADS}
    names = list(chosen) if options.only is None else [options.only]
    return min(1, sum(run_tests(chosen[name], options.logs) for name in names))


if __name__ == "__main__":
    sys.exit(main())
