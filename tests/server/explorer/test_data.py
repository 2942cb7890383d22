"""The explorer's data over HTTP, against the run itself."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import pytest

from polyformer.metrics import predicted_classes
from polyformer.reports.node_columns import MISSING
from polyformer.runs.run import Run
from polyformer.server.service import Service
from tests.server.explorer.served import serving, wait_until_whole

pytestmark = pytest.mark.slow
DATA = "/explorer/data"


def _column(client: httpx.Client, key: str) -> tuple[dict[str, Any], np.ndarray]:
    content = client.get(f"{DATA}/column", params={"key": key}).content
    length = int.from_bytes(content[:4], "little")
    assert length % 4 == 0
    return json.loads(content[4 : 4 + length]), np.frombuffer(content[4 + length :], "<u2")


def test_the_summary_says_what_there_is(client: httpx.Client, people: tuple[str, Service]) -> None:
    summary = wait_until_whole(client)
    assert summary["failure"] == ""
    assert (summary["nodes"], summary["classes"], summary["settable"]) == (80, ["no", "yes"], True)
    fields = {field["name"]: field for field in summary["features"]}  # type: ignore[attr-defined]
    assert list(fields) == ["age", "city", "since"]
    assert fields["city"]["categories"] == ["c0", "c1", "c2"]
    assert fields["since"]["date"]
    assert fields["age"]["optional"]
    assert len(summary["kinds"]["mean"]) == len(summary["kinds"]["names"])  # type: ignore[index]
    places = np.frombuffer(client.get(f"{DATA}/places").content, "<u2").reshape(-1, 2)
    assert len(np.unique(places, axis=0)) == 80


def test_columns_hold_what_the_run_says(client: httpx.Client, people_run: Run) -> None:
    task, scores = people_run.task(), people_run.predict()
    about, steps = _column(client, "prediction")
    best = predicted_classes(scores, people_run.load()[0].threshold)
    assert about["labels"] == ["no", "yes"]
    assert steps.tolist() == best.tolist()
    about, steps = _column(client, "confidence")
    assert np.allclose(about["least"] + about["step"] * steps, scores[np.arange(80), best], atol=1e-4)
    assert (
        _column(client, "degree")[1].tolist()
        == (np.diff(task.graph.indptr) - np.diff(task.graph.indptr).min()).tolist()
    )
    about, steps = _column(client, "feature:city")
    assert [about["labels"][step] for step in steps[:4]] == ["c0", "c1", "c2", "c0"]
    about, steps = _column(client, "feature:age")
    assert steps[1] == steps[10] == MISSING
    assert about["least"] + about["step"] * steps[2] == pytest.approx(22, abs=0.01)
    kinds = _column(client, "cluster")[1]
    filters = people_run.filters(clusters=int(kinds.max()) + 1)
    assert np.array_equal(kinds, filters.cluster)


def test_a_node_and_its_neighbours(client: httpx.Client, people_run: Run) -> None:
    task = people_run.task()
    node = client.get(f"{DATA}/nodes/0").json()
    assert node["name"] == "ann0"
    assert node["probabilities"] == pytest.approx(people_run.predict([0])[0].tolist(), abs=1e-5)
    assert node["features"] == {"age": 20.0, "city": "c0", "since": 14610.0}
    assert client.get(f"{DATA}/nodes/1").json()["features"]["age"] is None
    assert np.allclose(node["filter"]["coefficients"], people_run.filters().coefficients[0], atol=1e-5)
    around = task.graph.indices[task.graph.indptr[0] : task.graph.indptr[1]]
    assert node["neighbours"]["rows"] == around.tolist()
    later = client.get(f"{DATA}/nodes/0/neighbours", params={"offset": 30}).json()
    assert later["rows"] == around[30:].tolist()
    assert later["names"] == [str(name) for name in task.ids[around[30:]]]  # type: ignore[index]
    edges = np.frombuffer(client.get(f"{DATA}/nodes/0/around").content, "<u4").reshape(-1, 2)
    assert edges[: len(around)].tolist() == [[0, int(row)] for row in around]
    adjacency = task.graph.adjacency()
    assert all(adjacency[one, other] for one, other in edges)


def test_searches_and_what_they_light(client: httpx.Client) -> None:
    found = client.get(f"{DATA}/search", params={"q": "ann1"}).json()
    assert [node["name"] for node in found["nodes"][:2]] == ["ann1", "ann10"]
    assert found["count"] == 11
    query = "city=c1 age>50"
    found = client.get(f"{DATA}/search", params={"q": query}).json()
    wanted = [i for i in range(80) if i % 3 == 1 and i % 9 != 1 and 20 + i > 50]
    assert [node["row"] for node in found["nodes"]] == wanted
    bits = np.unpackbits(np.frombuffer(client.get(f"{DATA}/matches", params={"q": query}).content, np.uint8))[:80]
    assert np.flatnonzero(bits).tolist() == wanted
    for query in ("class=yes", "correct=wrong", 'kind="kind 1"', "confidence>=0", "part=test", "low>0.1", "label!=no"):
        assert client.get(f"{DATA}/search", params={"q": query}).status_code == 200


@pytest.mark.parametrize("name", ["ann0", 'a/b <i>"ü"'])
def test_what_if_over_http_equals_the_changed_graph(client: httpx.Client, people_run: Run, name: str) -> None:
    task = people_run.task()
    assert task.ids is not None
    row = int(np.flatnonzero(task.ids == name)[0])
    lost = int(task.graph.indices[task.graph.indptr[row]])
    body = {
        "id": name,
        "features": {"age": None, "city": "c2", "since": "2020-05-01"},
        "add_edges": ["ann5"],
        "remove_edges": [str(task.ids[lost])],
    }
    answer = client.post(f"{DATA}/what-if", json=body).json()
    stored = np.array(task.graph.unscaled.features)
    changed_row = stored[row].copy()
    missing = stored[1]  # the first of those without an age
    changed_row[:2] = missing[:2]
    changed_row[2:5] = [0, 0, 1]
    changed_row[5] = (np.datetime64("2020-05-01") - np.datetime64("1970-01-01")).astype(int)
    changed = task.graph.updated(
        add_edges=[[row, int(np.flatnonzero(task.ids == "ann5")[0])]],
        remove_edges=[[row, lost]],
        set_features={row: changed_row},
    )
    after = people_run.predict([row], graph=changed)[0]
    assert answer["before"]["probabilities"] == pytest.approx(people_run.predict([row])[0].tolist(), abs=1e-5)
    assert answer["after"]["probabilities"] == pytest.approx(after.tolist(), abs=1e-5)
    assert answer["before"]["probabilities"] != answer["after"]["probabilities"]
    alpha = people_run.filters(graph=changed).coefficients[row]
    assert np.allclose(answer["after"]["filter"]["coefficients"], alpha, atol=1e-5)
    assert client.get(f"{DATA}/nodes/{row}").json()["neighbours"]["rows"][0] == lost


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("column?key=nothing", 404, "There is no column 'nothing' to colour by."),
        ("search?q=city%3Dnowhere", 400, "'city' must be one of: c0, c1, c2. Got 'nowhere'."),
        ("search?q=" + "a" * 501, 400, "'q' must have at most 500 characters. Got 501."),
        ("search?q=a&offset=-1", 400, "'offset' must be a whole number"),
        ("row?id=nobody", 404, "The graph has no node 'nobody'."),
        ("nodes/80", 404, "The graph has no node in row 80."),
        ("nodes/80/around", 404, "The graph has no node in row 80."),
        ("nodes/x", 404, "There is nothing at this address."),
    ],
)
def test_bad_addresses_get_a_sentence(client: httpx.Client, path: str, status: int, sentence: str) -> None:
    answer = client.get(f"{DATA}/{path}")
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({}, 400, "The body is not what this address takes"),
        ({"id": "nobody"}, 404, "The graph has no node 'nobody'."),
        ({"id": "ann0", "add_edges": ["nobody"]}, 404, "The graph has no node 'nobody'."),
        ({"id": "ann0", "add_edges": ["ann0"]}, 400, "An edge must join two different nodes."),
        ({"id": "ann0", "remove_edges": ["ann4"]}, 400, "An edge that is to be removed is not there."),
        ({"id": "ann0", "add_edges": ["ann1"] * 201}, 400, "A question may change at most 200 edges. Got 201."),
        ({"id": "ann0", "features": {"height": 1}}, 400, "There is no feature 'height' to change."),
        ({"id": "ann0", "features": {"age": "old"}}, 400, "The column 'age' of the node 'ann0' must be a number."),
        ({"id": "ann0", "features": {"age": [1, {}]}}, 400, "The column 'age' of the node 'ann0' must be a number."),
    ],
)
def test_bad_questions_get_a_sentence(client: httpx.Client, body: Any, status: int, sentence: str) -> None:
    answer = client.post(f"{DATA}/what-if", json=body)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)


def test_data_need_the_token_and_the_page_does_not(people_run: Run) -> None:
    with serving(people_run, token="secret") as (address, _), httpx.Client(base_url=address, trust_env=False) as client:
        assert client.get("/explorer").status_code == 200
        assert client.get("/explorer/static/explorer.js").status_code == 200
        assert client.get(f"{DATA}/summary").status_code == 401
        assert client.get(f"{DATA}/summary", headers={"Authorization": "Bearer secret"}).status_code == 200
        for name in ("../routes.py", "routes.py", "%2e%2e%2froutes.py"):
            assert client.get(f"/explorer/static/{name}").status_code in (401, 404)
