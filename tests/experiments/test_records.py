"""Records as lines: read, added to, mended after a kill, and made of the single files of earlier versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from polyformer.errors import FileCorrupt, OutputBusy
from polyformer.experiments.plan_records import PlanRecords
from polyformer.experiments.records import Records
from tools.fold_records import main as fold_records

OLD = Path(__file__).parents[1] / "old_versions" / "version_0_1" / "records"
PLAN, NAME = "table5-baselines", "bernnet-chameleon_filtered-split0-seed0-f432332e"


@pytest.fixture
def records(tmp_path: Path) -> Records:
    shutil.copytree(OLD, tmp_path / "results")
    return Records(tmp_path / "results")


def content() -> dict[str, Any]:
    record: dict[str, Any] = json.loads((OLD / PLAN / f"{NAME}.json").read_text())
    return record


def test_single_files_of_version_0_1_are_read_and_become_lines(records: Records) -> None:
    assert records.plans() == [PLAN]
    plan = records.of_plan(PLAN)
    assert plan.read() == {NAME: content()}
    assert records.fold() == 1
    [line] = plan.path.read_text().splitlines()
    assert json.loads(line).items() > ({"name": NAME} | content()).items()
    assert Records(records.folder).of_plan(PLAN).read() == plan.read() == {NAME: content()}
    assert not (records.folder / PLAN).exists()
    before = plan.path.read_bytes()
    assert records.fold() == 0
    assert plan.path.read_bytes() == before


def test_lines_are_sorted_by_folding_and_the_last_of_a_name_counts(records: Records) -> None:
    plan = records.of_plan("mine")
    for name, seed in (("c", 0), ("a", 1), ("c", 2), ("b", 3)):
        plan.append(name, content() | {"format": seed})
    assert [json.loads(line)["name"] for line in plan.path.read_text().splitlines()] == ["c", "a", "c", "b"]
    assert {name: record["format"] for name, record in plan.read().items()} == {"a": 1, "b": 3, "c": 2}
    records.fold()
    assert [json.loads(line)["format"] for line in plan.path.read_text().splitlines()] == [1, 3, 2]


def test_records_of_another_folder_are_gathered(records: Records, tmp_path: Path) -> None:
    other = Records(tmp_path / "other")
    other.of_plan(PLAN).append("later", content())
    other.of_plan("mine").append("first", content())
    before = [path.read_bytes() for path in sorted(other.folder.iterdir())]
    assert records.fold(other.folder) == 3
    assert list(records.of_plan(PLAN).read()) == [NAME, "later"]
    assert list(records.of_plan("mine").read()) == ["first"]
    assert [path.read_bytes() for path in sorted(other.folder.iterdir())] == before


@pytest.mark.parametrize("cut", [1, 40, 1500])
def test_a_line_that_a_kill_cut_off_is_left_out_and_removed(tmp_path: Path, cut: int) -> None:
    plan = PlanRecords(tmp_path, "mine")
    plan.append("first", content())
    whole = plan.path.read_bytes()
    plan.append("second", content())
    assert len(plan.path.read_bytes()) > len(whole) + cut
    plan.path.write_bytes(plan.path.read_bytes()[: len(whole) + cut])
    assert list(plan.read()) == ["first"]
    plan.append("third", content())
    assert list(plan.read()) == ["first", "third"]
    assert plan.path.read_bytes().startswith(whole)
    assert plan.path.read_bytes().count(b"\n") == 2


def test_a_whole_line_whose_end_was_cut_off_is_kept(tmp_path: Path) -> None:
    plan = PlanRecords(tmp_path, "mine")
    plan.append("first", content())
    plan.path.write_bytes(plan.path.read_bytes()[:-1])
    plan.append("second", content())
    assert list(plan.read()) == ["first", "second"]


@pytest.mark.parametrize("damage", [("0.", "1."), ('"name"', '"nome"'), ("{", "")])
def test_a_damaged_line_is_named(records: Records, damage: tuple[str, str]) -> None:
    plan = records.of_plan("mine")
    for name in "ab":
        plan.append(name, content())
    first, second = plan.path.read_text().splitlines()
    plan.path.write_text(f"{first}\n{second.replace(*damage, 1)}\n")
    with pytest.raises(
        FileCorrupt, match=r"mine\.jsonl' holds a line that is not the record of a run\. Remove the line"
    ):
        plan.read()
    with pytest.raises(FileCorrupt, match=r"[Ll]ine 2"):
        plan.read()


def test_a_run_that_is_made_again_replaces_its_single_file(records: Records) -> None:
    plan = records.of_plan(PLAN)
    plan.append(NAME, content() | {"format": 5})
    assert plan.single_files() == []
    assert plan.read()[NAME]["format"] == 5


def test_records_are_not_folded_while_a_runner_makes_some(records: Records) -> None:
    with Records(records.folder).locked(), pytest.raises(OutputBusy, match="Another process"):
        records.fold()


def test_the_tool_says_how_many(
    records: Records, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["fold_records", str(records.folder), "--into", str(tmp_path / "new")])
    fold_records()
    assert capsys.readouterr().out == f"1 records became lines in '{tmp_path / 'new'}'.\n"
    assert list(Records(tmp_path / "new").of_plan(PLAN).read()) == [NAME]
