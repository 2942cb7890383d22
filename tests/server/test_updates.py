"""Changes by requests: durable when acknowledged, seen as a whole, refused with one sentence."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from polyformer.graph_journal import Journal
from polyformer.runs.run import Run
from polyformer.tasks import Task
from tests.server.served import copy_of, make_places, serving

FEATURES = {"age": 31, "city": "c1", "since": "2012-01-05"}
ZOE: dict[str, Any] = {"id": "zoe", "features": FEATURES, "label": "yes"}


def probabilities(client: httpx.Client, names: list[str]) -> np.ndarray:
    answer = client.post("/predict", json={"ids": names}).json()
    return np.array([entry["probabilities"] for entry in answer["predictions"]])


@pytest.mark.parametrize("stored", [True, False])
def test_a_change_is_served_and_durable(places: Path, tmp_path: Path, stored: bool) -> None:
    place = copy_of(places, tmp_path)
    with serving(place, tokens=stored, writable=True, tolerance=0.0) as client:
        body = {"add_nodes": [ZOE], "add_edges": [["zoe", "p3"], ["p9", "zoe"]], "remove_nodes": ["p7"]}
        answer = client.post("/updates", json=body).json()
        assert answer["version"] == 1
        assert answer["counts"]["nodes added"] == 1
        task = Task.load(place / "graph")
        assert (task.graph.version, str(task.ids[-1]), task.labels[-1]) == (1, "zoe", 1)  # type: ignore[index]
        assert Journal(place / "graph", 1).entries()[0]["source"] == "request"
        assert set(client.get("/nodes/zoe").json()["neighbours"]["ids"]) == {"p3", "p9"}
        assert client.get("/nodes/p7").status_code == 404
        changed = {"change_nodes": [{"id": "p2", "features": {"age": 3}}], "remove_edges": [["p2", "p15"]]}
        assert client.post("/updates", json=changed).json()["version"] == 2
        assert client.get("/health").json()["version"] == 2
        names = ["zoe", "p2", "p3", "p15"]
        rows = [list(Task.load(place / "graph").ids).index(name) for name in names]  # type: ignore[arg-type]
        expected = Run.open(place / "run").predict(rows, Task.load(place / "graph").graph)
        assert np.allclose(probabilities(client, names), expected, atol=1e-5)
    with serving(place, tokens=stored, writable=True) as client:  # and after a restart
        assert np.allclose(probabilities(client, names), expected, atol=1e-5)


def test_the_same_change_is_not_applied_twice(places: Path, tmp_path: Path) -> None:
    """A client whose connection was lost may ask again."""
    with serving(copy_of(places, tmp_path), writable=True) as client:
        body = {"add_nodes": [ZOE], "remove_nodes": ["p7"]}
        assert client.post("/updates", json=body).status_code == 200
        again = client.post("/updates", json=body)
        assert again.status_code == 409
        assert "as version 1" in again.json()["error"]
        edge = {"add_edges": [["p1", "p2"]]}
        assert client.post("/updates", json=edge).status_code == 200
        assert client.post("/updates", json={**edge, "again": True}).json()["version"] == 3


def test_an_id_that_was_removed_may_come_again(places: Path, tmp_path: Path) -> None:
    place = copy_of(places, tmp_path)
    with serving(place, writable=True) as client:
        assert client.post("/updates", json={"remove_nodes": ["p7"]}).status_code == 200
        new = {"add_nodes": [{**ZOE, "id": "p7"}], "add_edges": [["p7", "p1"]]}
        assert client.post("/updates", json=new).status_code == 200
        assert client.get("/nodes/p7").json()["neighbours"]["ids"] == ["p1"]
    with serving(place, writable=True) as client:
        assert client.get("/nodes/p7").json()["neighbours"]["ids"] == ["p1"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"remove_nodes": ["nobody"]}, 404, "no node 'nobody'"),
        ({"remove_edges": [["p1", "p2"]]}, 404, "no edge ['p1', 'p2']"),
        ({"add_nodes": [{**ZOE, "id": "p1"}]}, 400, "in the graph already"),
        ({"add_nodes": [ZOE, ZOE]}, 400, "given twice"),
        ({"add_nodes": [{"id": "zoe"}]}, 400, "has no 'features'"),
        ({"add_nodes": [{"id": "zoe", "features": {"age": 1}}]}, 400, "no value for the column 'city'"),
        ({"add_nodes": [{"id": "zoe", "features": [1, 2]}]}, 400, "numbers. Got 2"),
        ({"add_nodes": [{**ZOE, "features": {**FEATURES, "age": "old"}}]}, 400, "must be a number. Got 'old'"),
        ({"add_nodes": [{**ZOE, "features": {**FEATURES, "age": 1e30}}]}, 400, "at most 1e+19"),
        ({"add_nodes": [{**ZOE, "features": {**FEATURES, "since": "soon"}}]}, 400, "must be a date"),
        ({"add_nodes": [{**ZOE, "features": {**FEATURES, "pet": "cat"}}]}, 400, "no column of the node table"),
        ({"add_nodes": [{**ZOE, "split": "exam"}]}, 400, "must be train, val or test"),
        ({"add_edges": [["p1"]]}, 400, "[id, id] or [id, id, weight]"),
        ({"add_edges": [["p1", "p2", -1]]}, 400, "0 or a positive number"),
        ({"add_edges": [["p1", 2]]}, 400, "ids of this graph are texts"),
        ({"change_edges": [["p1", "p2"]]}, 400, "[id, id, weight]"),
        ({"remove_nodes": ["p1"], "change_nodes": [{"id": "p1", "label": "no"}]}, 400, "the same change removes"),
        ({"paint": []}, 400, "unknown field 'paint'"),
    ],
)
def test_a_wrong_change_changes_nothing(wrong: httpx.Client, body: dict[str, Any], status: int, words: str) -> None:
    answer = wrong.post("/updates", json=body)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.json()
    assert wrong.get("/health").json()["version"] == 0


@pytest.fixture(scope="module")
def wrong(places: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(copy_of(places, tmp_path_factory.mktemp("wrong")), writable=True) as client:
        yield client


def test_updates_need_writable(client: httpx.Client) -> None:
    answer = client.post("/updates", json={"remove_nodes": ["p1"]})
    assert (answer.status_code, "--writable" in answer.json()["error"]) == (403, True)


def test_reads_never_see_half_a_change(places: Path, tmp_path: Path) -> None:
    """Each change moves one edge; at every moment the node has exactly one of both neighbours, of the version told."""
    place = copy_of(places, tmp_path)
    with serving(place, writable=True) as client:
        body = {"add_nodes": [ZOE], "add_edges": [["zoe", "p10"]]}
        assert client.post("/updates", json=body).status_code == 200
        seen: list[tuple[int, list[str]]] = []
        ended = threading.Event()

        def read() -> None:
            with httpx.Client(base_url=client.base_url, trust_env=False, timeout=30) as own:
                while not ended.is_set():
                    answer = own.get("/nodes/zoe").json()
                    seen.append((answer["version"], answer["neighbours"]["ids"]))

        thread = threading.Thread(target=read)
        thread.start()
        for turn in range(6):
            there, other = ("p10", "p20") if turn % 2 == 0 else ("p20", "p10")
            move = {"remove_edges": [["zoe", there]], "add_edges": [["zoe", other]], "again": True}
            assert client.post("/updates", json=move).status_code == 200
        ended.set()
        thread.join()
        assert len({version for version, _ in seen}) > 1
        for version, neighbours in seen:
            assert neighbours == (["p10"] if version % 2 else ["p20"])


@pytest.mark.parametrize(("model", "stored"), [("polyformer", True), ("polyformer", False), ("cascade", False)])
def test_a_label_that_arrives_is_shown_to_the_model(tmp_path: Path, model: str, stored: bool) -> None:
    """Zoe's friends are predicted otherwise once her label is known; no held-out label counts."""
    place = make_places(tmp_path, model, label_input=0.5)
    friends = ["p3", "p9"]
    with serving(place, tokens=stored, writable=True, tolerance=0.0) as client:
        body = {"add_nodes": [{"id": "zoe", "features": FEATURES}], "add_edges": [["zoe", "p3"], ["p9", "zoe"]]}
        assert client.post("/updates", json=body).status_code == 200
        before = probabilities(client, friends)
        run = Run.open(place / "run")
        assert run.labels is not None
        held_out = Task.load(place / "graph").splits[0].test[0]
        task = Task.load(place / "graph")
        assert task.ids is not None
        other = {"id": str(task.ids[held_out]), "label": "no" if task.labels[held_out] else "yes"}
        assert client.post("/updates", json={"change_nodes": [other]}).status_code == 200
        assert np.array_equal(probabilities(client, friends), before)
        assert client.post("/updates", json={"change_nodes": [{"id": "zoe", "label": "yes"}]}).status_code == 200
        after = probabilities(client, friends)
        assert not np.allclose(after, before, atol=1e-6)
        rows = [list(task.ids).index(name) for name in friends]
        assert np.allclose(after, Run.open(place / "run").predict(rows), atol=1e-5)
