"""What the server answers is what the run says."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest

from polyformer.errors import InvalidParameter
from polyformer.runs.run import Run
from polyformer.server.service import Service
from polyformer.tasks import Task
from tests.server.served import PEOPLE, make_places, serving

WILD = "a/b <i>&ü"


def ids_of(places: Path) -> list[str]:
    ids = Task.load(places / "graph").ids
    assert ids is not None
    return [str(name) for name in ids]


def test_predictions_are_those_of_the_run(places: Path, client: httpx.Client) -> None:
    expected = Run.open(places / "run").predict()
    names = ids_of(places)
    answer = client.post("/predict", json={"ids": names}).json()
    assert [entry["id"] for entry in answer["predictions"]] == names
    scores = np.array([entry["probabilities"] for entry in answer["predictions"]])
    assert np.allclose(scores, expected, atol=1e-6)
    best = [answer["classes"][place] for place in expected.argmax(axis=1)]
    assert [entry["prediction"] for entry in answer["predictions"]] == best
    assert answer["version"] == 0


@pytest.mark.parametrize("stored", [True, False])
def test_a_node_has_its_filter_and_neighbours(places: Path, stored: bool) -> None:
    filters, task = Run.open(places / "run").filters(nodes=np.arange(PEOPLE)), Task.load(places / "graph")
    names = ids_of(places)
    with serving(places, tokens=stored) as client:
        for row in (0, 5, PEOPLE - 1):
            answer = client.get(f"/nodes/{quote(names[row], safe='')}").json()
            assert answer["id"] == names[row]
            assert np.allclose(answer["filter"]["coefficients"], filters.coefficients[row], atol=1e-5)
            assert np.allclose(answer["filter"]["response"], filters.responses[row], atol=1e-5)
            assert answer["label"] == ("yes" if row % 2 else "no")
            rows = task.graph.indices[task.graph.indptr[row] : task.graph.indptr[row + 1]]
            assert answer["neighbours"]["ids"] == [names[i] for i in rows]


def test_neighbours_come_in_pages(places: Path, client: httpx.Client) -> None:
    whole = client.get("/neighbours/p1").json()
    assert whole["count"] == len(whole["ids"]) > 1
    pages = [client.get(f"/neighbours/p1?limit=1&offset={i}").json()["ids"] for i in range(whole["count"] + 1)]
    assert [name for page in pages for name in page] == whole["ids"]


def test_an_id_may_hold_any_sign(client: httpx.Client) -> None:
    """A slash in the id, encoded or not; and no page shows it as markup."""
    for text in (quote(WILD, safe=""), quote(WILD)):
        answer = client.get(f"/nodes/{text}")
        assert answer.status_code == 200
        assert answer.json()["id"] == WILD
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("mode", ["frozen", "full"])
def test_new_nodes_are_predicted_as_by_the_run(places: Path, mode: str, client: httpx.Client) -> None:
    features = {"age": 31, "city": "c1", "since": "2012-01-05"}
    nodes = [{"id": "zoe", "features": features}, {"id": "yan", "features": {**features, "age": None}}]
    edges = [["zoe", "p3"], ["yan", "zoe"], ["p9", "yan"]]
    answer = client.post("/predict", json={"nodes": nodes, "edges": edges, "mode": mode}).json()
    service = client.service  # type: ignore[attr-defined]
    rows = service.features.rows(nodes)
    assert rows[1, 0] == service.state.task.columns[0].median
    numbers = {"zoe": PEOPLE, "yan": PEOPLE + 1, "p3": 3, "p9": 9}
    pairs = [[numbers[a], numbers[b]] for a, b in edges]
    expected = Run.open(places / "run").predict_new(rows, pairs, mode)
    scores = np.array([entry["probabilities"] for entry in answer["predictions"]])
    assert np.allclose(scores, expected, atol=1e-5)
    assert [entry["id"] for entry in answer["predictions"]] == ["zoe", "yan"]


def test_a_model_that_reads_the_whole_graph(tmp_path: Path) -> None:
    """One pass is kept; a filter that all nodes share, or none; new nodes in the mode full alone."""
    places = make_places(tmp_path, "gprgnn")
    expected = Run.open(places / "run").predict()
    with serving(places, tokens=False) as client:
        answer = client.post("/predict", json={"ids": ids_of(places)}).json()
        scores = np.array([entry["probabilities"] for entry in answer["predictions"]])
        assert np.allclose(scores, expected, atol=1e-6)
        assert client.get("/nodes/p3").json()["filter"]["shared"]
        new = {"nodes": [{"id": "zoe", "features": {"age": 1, "city": "c1", "since": "2012-01-05"}}]}
        refused = client.post("/predict", json=new)
        assert (refused.status_code, "mode full" in refused.json()["error"]) == (400, True)
        assert client.post("/predict", json={**new, "edges": [["zoe", "p1"]], "mode": "full"}).status_code == 200
        again = client.post("/predict", json={"ids": ids_of(places)}).json()
        with pytest.raises(InvalidParameter, match="reads no tokens"):
            Service(places / "run", tokens=tmp_path)
        assert again == answer  # the pass over the larger graph left the kept answers alone


def test_a_model_that_is_shown_labels(tmp_path: Path) -> None:
    places = make_places(tmp_path, label_input=0.5)
    expected = Run.open(places / "run").predict()
    for stored in (True, False):
        with serving(places, tokens=stored) as client:
            answer = client.post("/predict", json={"ids": ids_of(places)}).json()
            scores = np.array([entry["probabilities"] for entry in answer["predictions"]])
            assert np.allclose(scores, expected, atol=1e-6)


def test_pages_need_no_network(client: httpx.Client) -> None:
    for path in ("/", "/docs"):
        page = client.get(path)
        assert page.status_code == 200
        assert "http://" not in page.text.replace("http://127.0.0.1", "")
        assert "https://" not in page.text
        assert "<script" not in page.text
    assert "POST /predict" in client.get("/docs").text
    assert client.get("/docs.css").headers["content-type"].startswith("text/css")


def test_metrics_count(client: httpx.Client) -> None:
    client.get("/nodes/p2")
    client.get("/nodes/nobody")
    text = client.get("/metrics").text
    assert 'polyformer_requests_total{route="node",status="200"}' in text
    assert 'polyformer_requests_total{route="node",status="404"}' in text
    assert "polyformer_graph_version 0" in text
    counts = [line for line in text.splitlines() if line.startswith("polyformer_request_seconds_bucket")]
    assert counts == sorted(counts, key=lambda line: line.split('"')[1])  # routes one after the other
