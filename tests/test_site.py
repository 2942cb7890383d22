"""The pages that explain: their examples run, the sentences they quote are the program's, and none is orphaned."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tests.documentation import marked_blocks, page
from tools import filter_pictures, index_readme

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


def test_the_reference_has_every_public_name() -> None:
    import polyformer

    reference = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "api").glob("*.md")))
    documented = set(re.findall(r":: polyformer\.(\w+)", reference))
    assert set(polyformer.__all__) - {"__version__"} <= documented


def test_one_version() -> None:
    from polyformer import __version__

    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def links(path: Path) -> list[str]:
    """Targets of the links and pictures of a page, without code blocks."""
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<img src="([^"]+)"', text)


def anchors(path: Path) -> set[str]:
    """The anchors of the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda path: path.name)
def test_every_link_leads_to_something(path: Path) -> None:
    for link in links(path):
        if re.match(r"https?://|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name) if name else path
        made = target.suffix == "" and name in ("command-line", "api/index")
        assert target.exists() or made or target.with_suffix(".rst").exists(), f"{path.name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path.name}: {link}"


def test_the_readme_is_short_and_its_python_runs() -> None:
    text = page("../README.md")
    assert len(text.splitlines()) < 120
    [example] = [block for language, block in marked_blocks("../README.md") if language == "python"]
    assert len([line for line in example.splitlines() if line]) <= 10
    exec(compile(example.replace("epochs=20", "epochs=1"), "README.md", "exec"), {})


def test_links_of_the_readme_are_whole_on_a_package_index() -> None:
    assert doctest.testmod(index_readme).failed == 0
    text = index_readme.index_readme(page("../README.md"), "https://host/me/it", "1.2")
    assert "](docs/" not in text
    assert text.count("https://host/me/it/") > 20


def test_the_pictures_of_filters_are_those_that_the_tool_draws() -> None:
    for name, draw in {
        "filter-signals": filter_pictures.signals,
        "filter-responses": filter_pictures.filters,
        "filter-bases": filter_pictures.bases,
    }.items():
        drawn = (ROOT / "docs" / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert draw() == drawn, "Run tools/filter_pictures.py."
