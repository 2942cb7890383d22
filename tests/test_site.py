"""The pages that explain: their examples run, the sentences they quote are the program's, and none is orphaned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documentation import marked_blocks, page

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))


@pytest.mark.parametrize("name", ["filters.md", "coming-from.md"])
def test_examples_of_a_page_run(name: str) -> None:
    examples = [block for language, block in marked_blocks(name) if language == "python"]
    assert examples
    for example in examples:
        exec(compile(example, name, "exec"), {})


def test_the_sentences_of_the_questions_are_said_by_the_program() -> None:
    """Numbers and names in a quoted sentence stand for others; the words between them must be in the sources."""
    words = " ".join(re.sub(r"[\"'f]?\n\s*f?[\"']", "", SOURCES).split())
    sentences = re.findall(r'^"(.+)"$', page("faq.md"), re.MULTILINE)
    assert len(sentences) > 10
    for sentence in sentences:
        pieces = re.split(r"…|'[^']*'|[\d.,]+ GiB|\b\d+(?:\.\d+)?\b|\bnan\b|lr=", sentence)
        for piece in (piece.strip(" .:'") for piece in pieces):
            assert len(piece) < 4 or piece in words, f"Nothing says '{piece}'."


def test_every_page_has_a_place_in_the_site() -> None:
    listed = set(re.findall(r"^([\w/-]+)$", page("index.md"), re.MULTILINE))
    assert {path.stem for path in PAGES} - {"index"} <= listed


def test_one_version() -> None:
    from polyformer import __version__

    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
