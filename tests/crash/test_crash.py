"""A sample of kills and failing operations; `make crash` runs a thousand of each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("cc") is None or sys.platform != "linux", reason="there is no C compiler, or no LD_PRELOAD"
)
def test_a_sample_of_disturbances_leaves_everything_whole(tmp_path: Path) -> None:
    layer = tmp_path / "layer.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", layer, HERE / "layer.c", "-ldl"], check=True)
    environment = os.environ | {
        "LD_PRELOAD": str(layer),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "tests.crash", "--kills", "12", "--errors", "10"]
    command += ["--allocations", "10", "--seconds", "60"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert ended.returncode == 0, ended.stdout + ended.stderr
