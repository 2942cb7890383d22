"""The page "Which model, basis and order" says what the code does and what the records hold."""

from __future__ import annotations

from benchmarks.default_graphs import CONFIRMATION, DEVELOPMENT, GRAPHS
from benchmarks.default_page import BEGIN, END, difference, line, table
from benchmarks.defaults import CHOICES, MEASURED, read_records
from polyformer.models.polyformer import PolyFormerSettings
from polyformer.runs.auto.candidates import CANDIDATES
from tests.documentation import page


def test_the_page_names_every_candidate_and_the_defaults() -> None:
    text = page("which-model.md")
    for candidate in CANDIDATES.values():
        word = str(candidate.settings.get("basis", candidate.model))
        assert {"mlp": "MLP", "gcn": "GCN", "gcn-tuned": "tuned GCN"}.get(word, word).lower() in text.lower()
    settings = PolyFormerSettings()
    default = f"width {settings.hidden_channels}, {str(settings.basis).capitalize()} tokens of order {settings.order}"
    assert default in " ".join(text.split())


def test_the_table_is_what_the_records_hold() -> None:
    shown = page("which-model.md").split(BEGIN)[1].split(END)[0]
    assert shown.strip() == table(read_records(MEASURED)).strip()


def test_settings_were_chosen_on_the_development_half_alone() -> None:
    records = read_records(CHOICES)
    assert {GRAPHS[record["graph"]].half for record in records} == {DEVELOPMENT}
    assert all("test" not in record for record in records)
    assert {study.half for study in GRAPHS.values()} == {DEVELOPMENT, CONFIRMATION}


def test_differences_are_paired_and_to_the_best_baseline() -> None:
    scores = {
        ("tolokers", "mlp"): {0: 0.5, 1: 0.5},
        ("tolokers", "gcn"): {0: 0.6, 1: 0.7, 2: 0.9},
        ("tolokers", "polyformer"): {0: 0.7, 1: 0.6},
    }
    assert difference("tolokers", scores, ("mlp", "gcn")) == 0.0
    assert round(difference("tolokers", scores, ("mlp",)) or 0, 9) == 15.0
    assert line("tolokers", scores, "roc_auc").startswith("| tolokers | ROC-AUC | 50.0 ± 0.0 (2) |")
