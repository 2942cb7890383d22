"""The table of the cascade beside the other models: which runs of a model are shown, and what it is compared on."""

from __future__ import annotations

from typing import Any

from benchmarks.beyond_page import collect, line, paired


def record(
    model: str, split: int, test: float, val: float = 0.5, settings: str = "a", **changes: Any
) -> tuple[str, dict[str, Any]]:
    result = {"test": test, "val": val, "parameters": 10, "cpu_seconds": 2.0}
    content = {"plan": "beyond", "dataset": "tolokers", "model": model, "basis": None, "config": {"split": split}}
    return f"{model}-tolokers-split{split}-seed{split}-{settings}", content | {"result": result} | changes


def test_differences_are_over_the_splits_of_both() -> None:
    ours = [record("cascade", split, test) for split, test in enumerate((0.8, 0.9, 0.1))]
    theirs = [record("gcn", split, test) for split, test in enumerate((0.7, 0.7))]
    best = collect([*ours, *theirs])
    cascade, gcn = best["tolokers", "cascade"], best["tolokers", "gcn"]
    assert paired(cascade, gcn) == "+15.00 ± 63.53, 2 splits"  # 12.706 times 5
    assert line(cascade, gcn) == "| tolokers | gcn | 70.00 (0.00) | 2 | 50.00 | 10 | 2 | +15.00 ± 63.53, 2 splits |"


def test_the_series_is_chosen_by_runs_and_validation_never_by_test() -> None:
    many = [record("gcn", split, 0.6, val=0.7, settings="many") for split in range(3)]
    better = [record("gcn", split, 0.5, val=0.8, settings="better") for split in range(3)]
    few = [record("gcn", 0, 0.9, val=0.9, settings="few")]
    assert collect([*many, *better, *few])["tolokers", "gcn"].mean("test") == 0.5


def test_other_splits_and_data_sets_stay_out() -> None:
    uniform = record("gcn", 0, 0.9, config={"split": 0, "protocol": "uniform"})
    assert collect([uniform, record("gcn", 0, 0.9, dataset="web-google")]) == {}
