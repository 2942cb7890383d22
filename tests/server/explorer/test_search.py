"""Searches against what plain Python finds."""

from __future__ import annotations

import re

import numpy as np
import pytest

from polyformer.errors import InvalidParameter
from polyformer.graph import Graph
from polyformer.server.explorer.search import Attribute, NodeSearch
from polyformer.server.names import NodeNames
from polyformer.tasks import Task

NAMES = [f"{word}{i}" for i in range(250) for word in ("Ann", "bob", "ünal", "a b")]
RANDOM = np.random.default_rng(0)
AGE = np.where(np.arange(1000) % 10 == 0, np.nan, RANDOM.integers(18, 90, 1000).astype(float))
KIND = RANDOM.integers(-1, 3, 1000)
LABELS = ["safe", "mine", "Not sure"]


def _attribute(name: str) -> Attribute | None:
    known = {"age": Attribute("age", AGE), "kind": Attribute("kind", KIND, LABELS)}
    return known.get(name.lower())


def _search(removed: list[int] | None = None, ids: list[str] | None = NAMES) -> NodeSearch:
    graph = Graph(np.empty((2, 0), np.int64), num_nodes=1000)
    graph.removed = np.array(removed or [], np.int64)
    names = None if ids is None else np.array(ids)
    return NodeSearch(NodeNames.of(Task("people", graph, np.zeros(1000, np.int64), (), ids=names)), _attribute)


@pytest.mark.parametrize("text", ["ann1", "ANN", "ünal24", "b 1", "9", "zebra", '"a b1"'])
def test_parts_of_ids_in_any_case(text: str) -> None:
    found = _search().find(text)
    wanted = text.replace('"', "").lower()
    assert set(found.rows.tolist()) == {row for row, name in enumerate(NAMES) if wanted in name.lower()}
    assert found.complete


def test_the_closest_ids_come_first() -> None:
    names = [NAMES[row] for row in _search().find("ann1").rows]
    assert names[0] == "Ann1"
    assert names[1].startswith("Ann1")
    numbers = [str(row) for row in _search(ids=None).find("12").rows]
    assert numbers[0] == "12"
    assert numbers.index("120") < numbers.index("112")
    assert set(numbers) == {str(i) for i in range(1000) if "12" in str(i)}


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("age<30", AGE < 30),
        ("age>=60 kind=mine", (AGE >= 60) & (KIND == 1)),
        ("kind!=safe", (KIND != 0) & (KIND >= 0)),
        ('kind="not sure" AGE>20', (KIND == 2) & (AGE > 20)),
        ("kind:sure", KIND == 2),
        ("age=40", AGE == 40),
        ("age!=40", np.isfinite(AGE) & (AGE != 40)),
        ("", np.ones(1000, bool)),
    ],
)
def test_comparisons(query: str, fits: np.ndarray) -> None:
    assert _search().find(query).rows.tolist() == np.flatnonzero(fits).tolist()


def test_ids_and_comparisons_together_and_removed_nodes() -> None:
    rows = _search(removed=[4, 8]).find("ann kind=mine").rows
    expected = {row for row, name in enumerate(NAMES) if "ann" in name.lower() and KIND[row] == 1} - {4, 8}
    assert set(rows.tolist()) == expected
    assert 4 not in _search(removed=[4]).find("ann1").rows


def test_a_comparison_of_nothing_known_is_a_part_of_an_id() -> None:
    names = [f"node={i}" for i in range(1000)]
    assert _search(ids=names).find("node=7").rows[0] == 7


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("kind=maybe", "'kind' must be one of: safe, mine, Not sure. Got 'maybe'."),
        ("kind<3", "compared with = and != alone"),
        ("age<old", "'age' is compared with a number, as in <0.5. Got 'old'."),
        (" ".join(["a"] * 21), "at most 20 terms. Got 21."),
    ],
)
def test_searches_that_cannot_be(query: str, message: str) -> None:
    with pytest.raises(InvalidParameter, match=re.escape(message)):
        _search().find(query)
