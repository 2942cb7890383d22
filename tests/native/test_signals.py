"""A mapped file that is cut off while it is in use ends the process with a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from polyformer.native import is_available

CODE = """
import sys, os, numpy as np
from polyformer.files import map_npy
from polyformer.native import answer_bus_errors
from pathlib import Path
answer_bus_errors(2)
array = map_npy(Path(sys.argv[1]))
os.truncate(sys.argv[1], 4096)
print(array.sum())
"""


@pytest.mark.skipif(not is_available(), reason="the native kernel is not built")
def test_a_file_that_is_cut_off_while_it_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(1_000_000))
    ended = subprocess.run(
        [sys.executable, "-c", CODE, tmp_path / "a.npy"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "was cut off, or its disk failed. Restore the file" in ended.stderr
