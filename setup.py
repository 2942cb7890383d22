"""Builds the native kernel; where no compiler is found the package installs without it and runs on scipy.

The kernel knows nothing of Python: one library, and so one wheel, serves every version. ``POLYFORMER_REQUIRE_KERNEL=1``
makes a build without a kernel fail: wheels for others are built with it. ``POLYFORMER_REPOSITORY`` is the address that
links of the README lead to on a package index.
"""

import copy
import os
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# -Wno-psabi: vectors are passed between functions of one file only, so how they are passed concerns nobody else.
FLAGS = ["-O3", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi"]
NATIVE = Path("src/polyformer/native")
SIGNATURES = NATIVE / "signatures.py"
LIBRARY = "_kernel.dll" if os.name == "nt" else "_kernel.so"  # as native/__init__.py looks for it
REQUIRED = os.environ.get("POLYFORMER_REQUIRE_KERNEL", "") not in ("", "0")
# Apple's clang has no -fopenmp of its own.
OPENMP = {"darwin": ["-Xpreprocessor", "-fopenmp", "-lomp"]}.get(sys.platform, ["-fopenmp"])
SLOWEST_FIRST = [
    "attention_avx2",
    "attention_avx512",
    "attention_plain",
    "matmul_avx512",
    "matmul_avx2",
    "rows_avx512",
    "rows_avx2",
    "rows_plain",
    "matmul",
    "rows",
    "recurrence",
    "sparse",
    "synthetic",
    "stage",
    "half_product",
    "attention",
    "token_rows",
    "token_moves",
    "signals",
]


class BuildKernel(build_ext):
    """Try with OpenMP, then without it (compilers that do not ship it), then give up quietly."""

    def run(self) -> None:
        """Build, unless the library in the source tree, where this build would put it, is newer than its sources."""
        if not (self.inplace and self._is_up_to_date()):
            super().run()

    def build_extension(self, ext: Extension) -> None:
        failure: Exception | None = None
        for openmp in (OPENMP, []):
            try:
                self._compile_and_link(ext, openmp)
                return
            except Exception as error:
                failure = error
        if REQUIRED:
            raise SystemExit(
                f"polyformer: the native kernel was not built, and POLYFORMER_REQUIRE_KERNEL asks for it: {failure}"
            )
        print(f"polyformer: the native kernel was not built ({failure}); scipy will be used.", file=sys.stderr)

    def copy_extensions_to_source(self) -> None:
        """Editable installs copy the library into the source tree; there is nothing to copy if it was not built."""
        try:
            super().copy_extensions_to_source()
        except Exception as error:
            print(f"polyformer: no native kernel to copy ({error}).", file=sys.stderr)

    def get_ext_filename(self, fullname: str) -> str:
        """A name without Python's ABI, as the library uses none of it."""
        return str(Path(*fullname.split(".")[:-1]) / LIBRARY)

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """None: it is no Python module, so Windows must not look for its ``PyInit``."""
        return []

    def _compile_and_link(self, ext: Extension, openmp: list[str]) -> None:
        """Compile as many sources at a time as there are cores, then link the objects: setuptools knows no such way."""
        flags = [*FLAGS, *(flag for flag in openmp if flag != "-lomp")]

        macros = [("POLYFORMER_ABI", str(runpy.run_path(str(SIGNATURES))["ABI"]))]

        def compile_source(source: str) -> list[str]:
            return self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                macros=macros,
                debug=self.debug,
                extra_postargs=flags,
                depends=ext.depends,
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [name for names in pool.map(compile_source, ext.sources) for name in names]
        linked = copy.copy(ext)
        linked.sources, linked.extra_objects = [], objects
        linked.depends = objects  # linked again when an object is newer than the library
        linked.extra_link_args = [flag for flag in openmp if flag != "-Xpreprocessor"]
        super().build_extension(linked)

    def _is_up_to_date(self) -> bool:
        ext = self.extensions[0]
        library = NATIVE / LIBRARY
        sources = [Path(name) for name in (*ext.sources, *ext.depends, __file__)]
        return library.exists() and library.stat().st_mtime > max(source.stat().st_mtime for source in sources)


class Wheel(bdist_wheel):
    """A wheel for every Python 3 on one platform; for any platform if it has no kernel."""

    def get_tag(self) -> tuple[str, str, str]:
        built = any(Path(self.bdist_dir).rglob(LIBRARY)) if self.bdist_dir and Path(self.bdist_dir).exists() else True
        platform = super().get_tag()[2] if built else "any"
        return "py3", "none", platform


VERSION = runpy.run_path("src/polyformer/version.py")["__version__"]
REPOSITORY = os.environ.get("POLYFORMER_REPOSITORY") or None  # the address of the repository, which a release knows
index_readme = runpy.run_path("tools/index_readme.py")["index_readme"]

setup(
    long_description=index_readme(Path("README.md").read_text(encoding="utf-8"), REPOSITORY, VERSION),
    long_description_content_type="text/markdown",
    project_urls={} if REPOSITORY is None else {"Source": REPOSITORY, "Issues": f"{REPOSITORY}/issues"},
    ext_modules=[
        Extension(
            "polyformer.native._kernel",
            sources=[str(NATIVE / f"{name}.cpp") for name in SLOWEST_FIRST],
            depends=[str(SIGNATURES), *sorted(str(header) for header in NATIVE.glob("*.h"))],
            language="c++",
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": Wheel},
)
