"""Headers of npy files: read as numpy reads them, by many threads at once, and strictly."""

from __future__ import annotations

import io
import threading

import numpy as np
import pytest

from polyformer.files.npy import read_npy_header


def header_of(text: str) -> bytes:
    """A file of format 1.0 whose header is a text."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin-1")


@pytest.mark.parametrize("dtype", ["bool", "<i8", ">i4", "<f2", "<f8", "<c8", "<U7", "S3"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (1, 0, 4)])
def test_a_header_is_read_as_numpy_writes_it(dtype: str, shape: tuple[int, ...]) -> None:
    for array in (np.zeros(shape, dtype), np.zeros(shape, dtype, order="F")):
        stream = io.BytesIO()
        np.save(stream, array)
        stream.seek(0)
        header = read_npy_header(stream)
        assert (header.shape, header.dtype) == (array.shape, array.dtype)
        assert header.fortran_order == (array.flags.f_contiguous and not array.flags.c_contiguous)
        assert len(stream.getvalue()) - header.offset == array.nbytes


def test_sizes_that_python_2_wrote() -> None:
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 2L), }\n"
    assert read_npy_header(io.BytesIO(header_of(text))).shape == (3, 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': '(3,)'}",
        "{'descr': '<f4', 'fortran_order': 'False', 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",)}",
    ],
)
def test_other_headers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="its header"):
        read_npy_header(io.BytesIO(header_of(text)))


def test_a_file_that_ends_inside_its_header() -> None:
    text = header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }")
    with pytest.raises(ValueError, match="ends inside its header"):
        read_npy_header(io.BytesIO(text[:-4]))


def test_many_threads_read_headers_at_once() -> None:
    text = header_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }")
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(3000):
                assert read_npy_header(io.BytesIO(text)).shape == (3, 2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
