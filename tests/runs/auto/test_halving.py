"""Successive halving as pure logic."""

from __future__ import annotations

import math

import pytest

from polyformer.runs.auto.halving import num_rounds, slice_seconds, survivors


@pytest.mark.parametrize("count", range(1, 20))
def test_halving_leaves_one_candidate_for_the_last_round(count: int) -> None:
    names = [f"model {i}" for i in range(count)]
    scores = {name: float(i) for i, name in enumerate(names)}
    for _ in range(num_rounds(count) - 1):
        names, _ = survivors(names, scores)
    assert names == [f"model {count - 1}"]


@pytest.mark.parametrize("count", [1, 3, 6])
def test_turns_of_all_rounds_use_the_budget_and_no_more(count: int) -> None:
    left, waiting = 100.0, count
    for rounds_left in range(num_rounds(count), 0, -1):
        for position in range(waiting):
            left -= slice_seconds(left, rounds_left, waiting - position) if position else left / rounds_left / waiting
        waiting = math.ceil(waiting / 2)
    assert 0 <= left < 100.0


@pytest.mark.parametrize(("larger_is_better", "kept"), [(True, ["b", "c"]), (False, ["a", "c"])])
def test_the_better_half_goes_on_in_its_order(larger_is_better: bool, kept: list[str]) -> None:
    scores = {"a": 0.1, "b": 0.9, "c": 0.5, "d": None}
    assert survivors(list(scores), scores, larger_is_better)[0] == kept


def test_of_equal_scores_the_earlier_and_cheaper_goes_on() -> None:
    assert survivors(["mlp", "gcn"], {"mlp": 0.5, "gcn": 0.5}) == (["mlp"], ["gcn"])
