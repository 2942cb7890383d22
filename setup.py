"""Builds the native kernel; where no compiler is found the package installs without it and runs on scipy."""

import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FLAGS = ["-O3", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
NATIVE = "src/polyformer/native"


class BuildKernel(build_ext):
    """Try with OpenMP, then without it (compilers that do not ship it), then give up quietly."""

    def build_extension(self, ext: Extension) -> None:
        if self.compiler.compiler_type == "msvc":
            attempts = [["/O2", "/std:c++17", "/openmp"]]
        else:
            attempts = [[*FLAGS, "-fopenmp"], FLAGS]
        for flags in attempts:
            ext.extra_compile_args = flags
            ext.extra_link_args = [flag for flag in flags if flag == "-fopenmp"]
            try:
                super().build_extension(ext)
                return
            except Exception as error:
                failure = error
        print(f"polyformer: the native kernel was not built ({failure}); scipy will be used.", file=sys.stderr)

    def copy_extensions_to_source(self) -> None:
        """Editable installs copy the library into the source tree; there is nothing to copy if it was not built."""
        try:
            super().copy_extensions_to_source()
        except Exception as error:
            print(f"polyformer: no native kernel to copy ({error}).", file=sys.stderr)


setup(
    ext_modules=[
        Extension(
            "polyformer.native._kernel",
            sources=[f"{NATIVE}/{name}.cpp" for name in ("sparse", "recurrence", "attention", "synthetic")],
            depends=[f"{NATIVE}/{name}.h" for name in ("targets", "product", "attention_body", "mixing_body")],
            language="c++",
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernel},
)
