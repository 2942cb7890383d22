"""The records that are kept, and the page made of them: up to date, and every gap explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from polyformer.experiments import EXPERIMENTS
from polyformer.experiments.page import results_page
from polyformer.experiments.plan import load_plan, open_experiment
from polyformer.experiments.records import Records
from polyformer.experiments.summary import load_remarks, summarise

ROOT = Path(__file__).parents[2]
RECORDS = Records(ROOT / "results")
GAP = 0.02


def test_the_page_is_what_the_records_say() -> None:
    page = (ROOT / "docs" / "results.md").read_text("utf-8")
    assert page == results_page(RECORDS), "run make results"


def test_every_record_belongs_to_a_plan() -> None:
    plans = dict.fromkeys(plan for name in EXPERIMENTS for plan in EXPERIMENTS[name].plans)
    known = {RECORDS.path(job) for plan in plans for entry in load_plan(plan).series() for job in entry.jobs()}
    kept = set(RECORDS.folder.glob("*/*.json"))
    assert kept
    assert not sorted(path.name for path in kept - known)


@pytest.mark.parametrize("name", ["table4", "table5", "models"])
def test_every_gap_has_a_remark(name: str) -> None:
    experiment, series = open_experiment(name)
    records = RECORDS.read_all(job for entry in series for job in entry.jobs())
    for entry in series:
        for row in summarise([entry], records, experiment.published):
            if row.difference is not None and row.difference < -GAP:
                assert entry.key in load_remarks(), f"{entry.key} is {row.difference:.3f} off"


def test_remarks_are_about_rows_that_there_are() -> None:
    for key in load_remarks():
        assert key in {entry.key for entry in load_plan(key[0]).series()}
