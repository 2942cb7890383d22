"""The table of signatures against the C++ sources, and what the border refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyformer import native
from polyformer.errors import KernelRefused, OutOfResources
from polyformer.native import call
from polyformer.native.signatures import SIGNATURES, Kind, Number

SOURCES = sorted(Path(native.__file__).parent.glob("*.cpp"))
_C_TYPES = {"float16": "uint16_t", "float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t"}


def _exported() -> dict[str, list[str]]:
    """Every exported function's arguments as the sources write them; macros are expanded for each of their uses."""
    functions: dict[str, list[str]] = {}
    for source in SOURCES:
        text = re.sub(r"\s*\\\n\s*|\s*\n\s*", " ", source.read_text().partition('extern "C" {')[2])
        functions |= {
            name: written.split(", ") for name, written in re.findall(r"int polyformer_(\w+)\(([^)]*)\) try", text)
        }
        for macro, written in re.findall(r"#define (\w+)\(name, T[^)]*\) int name\(([^)]*)\) try", text):
            for name, number in re.findall(rf"{macro}\(polyformer_(\w+), (\w+)", text):
                functions[name] = re.sub(r"\bT\b", number, written).split(", ")
    return functions


def _in_c(name: str, kind: Kind) -> str:
    if isinstance(kind, Number):
        return f"{kind.c_type} {name}"
    return f"{'' if kind.written else 'const '}{_C_TYPES[kind.dtype]}* {name}"


def test_table_is_what_the_sources_export() -> None:
    table = {name: [_in_c(*argument) for argument in signature.items()] for name, signature in SIGNATURES.items()}
    assert table == _exported()


def test_every_exported_function_keeps_its_exceptions() -> None:
    for source in SOURCES:
        exported = source.read_text().partition('extern "C" {')[2]
        names = len(re.findall(r"^ *int (?:name|polyformer_(?!abi)\w+)\(", exported, re.MULTILINE))
        assert exported.count(") try {") == names == exported.count("POLYFORMER_BORDER"), source.name


def _dropout(**changes: Any) -> dict[str, Any]:
    x = np.ones(6, np.float32)
    arguments = {"count": 6, "x": x, "residual": None, "seed": 0, "threshold": 0, "keep": 1.0, "out": np.empty_like(x)}
    return arguments | changes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"x": np.ones(6)}, "numbers of float32 as 'x'. Got float64"),
        ({"x": torch.ones(6, dtype=torch.float64)}, "numbers of float32 as 'x'. Got torch.float64"),
        ({"x": np.ones(5, np.float32)}, r"at least 6 .* as 'x'. Got float32, shape \(5,\)"),
        ({"residual": np.ones(12, np.float32)[::2]}, "as 'residual'.* not contiguous"),
        ({"residual": torch.ones(12)[::2]}, "as 'residual'.* not contiguous"),
        ({"out": np.broadcast_to(np.float32(0), 6)}, "writeable .* as 'out'"),
        ({"out": None}, "takes an array as 'out'. Got None"),
        ({"seed": 0.5}, "cannot take its arguments"),
        ({"scale": 1}, "takes count, x, .* Got .*scale"),
    ],
)
def test_what_would_leave_a_buffer_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(KernelRefused, match=f"'dropout' .*{reason}.*report it"):
        call("dropout", **_dropout(**changes))


def test_arrays_and_tensors_are_taken_alike() -> None:
    out = torch.empty(6)
    call("dropout", **_dropout(residual=torch.ones(6), out=out))
    assert out.tolist() == [2.0] * 6


def test_sizes_that_are_not_compiled_are_refused() -> None:
    tokens, matrix = np.zeros((1, 65, 1), np.float32), np.eye(65, dtype=np.float32)
    with pytest.raises(KernelRefused, match="not compiled for these sizes"):
        call("mix", rows=1, count=65, width=1, matrix=matrix, tokens=tokens)


def test_memory_that_runs_out_in_the_kernel_is_an_error_of_ours() -> None:
    """Tokens without columns need no array, so only the kernel's own sums of 2^60 nodes do not fit."""
    sizes = {"nodes": 2**60, "heads": 1, "tokens": 1, "padded": 0, "head_width": 0, "value_width": 0}
    mask = {"factor": 1.0, "seed": 0, "threshold": 0, "keep": 1.0}
    names = ("query_key", "values", "scores", "out_grad", "query_key_grad", "values_grad", "bias", "bias_grad")
    arrays = {name: np.empty(1 if name.startswith("bias") else 0, np.float32) for name in names}
    with pytest.raises(OutOfResources, match="Memory ran out in the native function 'attention_backward'"):
        call("attention_backward", **sizes, **mask, **arrays)
