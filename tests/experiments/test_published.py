"""The published scores are those of the paper's tables, entry by entry, where the paper is beside the repository."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from polyformer.bases import BASES
from polyformer.datasets import DATASETS
from polyformer.datasets.grid import GRID_2D
from polyformer.datasets.image_fitting import FILTERS, filter_targets
from polyformer.experiments.published import PublishedScore, published_scores
from polyformer.models import MODELS

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "polyformer.tex"
TABLES = {
    "result_SBM_PolyAtttn": "synthetic",
    "result_real_PolyAttn": "polyattn",
    "PolyFormer_realdataset": "node-classification",
    "PolyFormer_largedataset": "large-scale",
    "result_SBM_PolyAtttn_ab": "selfattn",
}
WITHOUT_SCORES = {"recursive_computing_of_polynomial_tokens", "predefined_filter", "table:notations"}
BASIS = {"Mono": "monomial", "Bern": "bernstein", "Opt": "optimal", "Cheb": "chebyshev"}
SYNTHETIC = [
    "mixed-low-pass", "mixed-high-pass", "mixed-band-pass", "mixed-rejection-pass", "low-and-high-pass",
    "band-and-rejection-pass",
]  # fmt: skip
COLUMNS = {
    "synthetic": SYNTHETIC,
    "polyattn": ["cs", "pubmed", "roman-empire", "questions"],
    "node-classification": [
        "citeseer", "cs", "pubmed", "physics", "chameleon_filtered", "squirrel_filtered", "minesweeper", "tolokers",
        "roman-empire", "questions",
    ],
    "large-scale": ["twitch-gamers", "ogbn-arxiv", "pokec", "ogbn-papers100M"],
    "selfattn": SYNTHETIC[:4],
}  # fmt: skip
NUM_ROWS = {"synthetic": 9, "polyattn": 8, "node-classification": 19, "large-scale": 9, "selfattn": 8}
ABOUT_THE_DATA = {"Nodes", "Edges", "Features", "Classes"}
NO_NUMBER = {"OOM": "out of memory", "-": "out of memory or time"}


def paper_tables() -> dict[str, str]:
    """The source of every table by its label, comments left out."""
    if not PAPER.exists():
        pytest.skip(f"the paper is not at {PAPER}")
    source = re.sub(r"(?<!\\)%.*", "", PAPER.read_text(encoding="utf-8"))
    tables = re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", source, re.DOTALL)
    return {re.findall(r"\\label\{(.*?)\}", table)[-1]: table for table in tables}


def printed_rows(table: str) -> list[tuple[str, str | None, list[str]]]:
    """(model, basis, cells) of every row with scores, formatting left out."""
    rows = []
    for line in table.split(r"\\"):
        plain = re.sub(r"\\(toprule|midrule|bottomrule|cemp|textbf|underline|text)|[{}$\s_]", " ", line)
        first, *cells = (re.sub(r"\\pm|±", " ± ", cell).strip() for cell in re.split(r"(?<!\\)&", plain))
        name = re.fullmatch(r"([\w-]+)(?: *\( *(\w+) *\))?", first.split("  ")[-1].strip())
        if name is None or not cells or first in ABOUT_THE_DATA or not re.match(r"[\d.]+|OOM|-", cells[0]):
            continue
        rows.append((name[1].lower().replace("gpr-gnn", "gprgnn"), BASIS.get(name[2]), cells))
    return rows


def expected(entry: PublishedScore) -> list[str]:
    """The words of the cell that the entry stands for."""
    if entry.score is None:
        return [next(sign for sign, note in NO_NUMBER.items() if note == entry.note)]
    if entry.interval is None:
        return [f"{entry.score:.4f}"]
    mark = ["*"] if entry.note == "truncated eigenpairs" else []
    return [f"{100 * entry.score:.2f}", "±", f"{100 * entry.interval:.2f}", *mark]


def test_every_table_of_the_paper_is_known() -> None:
    assert set(paper_tables()) == set(TABLES) | WITHOUT_SCORES


@pytest.mark.parametrize("label", TABLES)
def test_scores_are_the_papers(label: str) -> None:
    table = TABLES[label]
    rows, seen = printed_rows(paper_tables()[label]), 0
    assert len(rows) == NUM_ROWS[table]
    for model, basis, cells in rows:
        assert len(cells) == len(COLUMNS[table])
        for dataset, cell in zip(COLUMNS[table], cells, strict=True):
            entries = [e for e in published_scores(model, dataset, table=table) if e.basis == basis]
            words = re.findall(r"[\d.]+|±|OOM|\*|-", cell)
            assert [word for entry in entries for word in expected(entry)] == words, (model, basis, dataset)
            seen += len(entries)
    assert seen == len(published_scores(table=table))


def test_names_are_those_of_the_package() -> None:
    scores = published_scores()
    assert len(scores) == 398
    assert {entry.model for entry in scores} <= set(MODELS)
    assert {entry.basis for entry in scores if entry.basis} <= set(BASES)
    assert {entry.dataset for entry in scores} - set(DATASETS) == set(SYNTHETIC)
    for entry in scores:
        if entry.dataset in DATASETS and entry.dataset != "ogbn-papers100M":
            assert entry.metric == DATASETS[entry.dataset].metric, entry.dataset
        assert entry.score is not None or entry.note
        assert entry.metric == "squared_error" or entry.score is None or 0 < entry.score < 1


def test_published_fits_are_of_image_15(data_root: Path) -> None:
    """R² = 1 - squared error / variance: only one image has variances that fit the printed pairs."""
    images, agree = GRID_2D.images(data_root), np.zeros(50, int)
    scores = {(e.model, e.basis, e.dataset, e.metric): e for e in published_scores(table="synthetic")}
    slips = []
    for dataset, name in zip(SYNTHETIC, FILTERS, strict=True):
        targets = filter_targets(images.graph, images.signals, name)[images.interior]  # (9216, 50)
        variances = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
        for model, basis in {(e.model, e.basis) for e in scores.values()}:
            printed, error = (scores[model, basis, dataset, metric] for metric in ("r2", "squared_error"))
            assert printed.score is not None
            fits = np.abs(1 - (error.score or 0.0) / variances - printed.score) < 1.01e-4
            agree += fits
            slips += [printed] if not fits[15] else []
    assert agree[15] == 52
    assert np.delete(agree, 15).max() < 20
    assert sorted(slip.note for slip in slips) == sorted(e.note for e in scores.values() if "slip" in e.note)
