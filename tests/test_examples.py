"""Every example runs, says what it found, and stands in the gallery."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if "serv" not in path.name)
"""Those of serving need a file that was exported, or a server; other tests run them."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert said
    assert "nan" not in said


def test_the_image_gets_two_kinds_of_filters(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "filters_of_an_image.py"), run_name="__main__")
    left, right = re.findall(r"half at .*?\[([\d. -]+)\]", capsys.readouterr().out)
    assert float(left.split()[0]) > 0.5 > float(left.split()[2])
    assert float(right.split()[0]) < 0.5 < float(right.split()[2])


def test_every_example_is_in_the_gallery() -> None:
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert path.name in gallery
