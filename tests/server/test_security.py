"""Who may ask: loopback by default, a token elsewhere, closed to pages of other sites."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from polyformer.errors import InvalidParameter
from polyformer.server.limits import Limits
from polyformer.server.listening import bind_port
from tests.server.served import serving


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_hosts_need_a_token(host: str) -> None:
    with pytest.raises(InvalidParameter, match="'--token'"):
        bind_port(host, 0, None)


def test_a_token_is_asked_for(places: Path) -> None:
    with serving(places, token="s3cret") as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
            answer = client.get("/nodes/p1", headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "p1" not in answer.text
        for path in ("/metrics", "/docs", "/openapi.json", "/neighbours/p1", "/explorer/data/anything"):
            assert client.get(path).status_code == 401
        for path in ("/health", "/"):  # they hold no data
            assert client.get(path).status_code == 200
        assert client.get("/nodes/p1", headers={"Authorization": "bearer s3cret"}).status_code == 200
        named = {"Authorization": "Bearer s3cret", "Host": "graphs.example.org"}
        assert client.get("/nodes/p1", headers=named).status_code == 200  # behind a proxy


def test_a_name_of_another_site_is_refused_without_a_token(client: httpx.Client) -> None:
    """A page of another site whose name leads to this machine must not read the answers."""
    answer = client.get("/nodes/p1", headers={"Host": "evil.example.org:8750"})
    assert answer.status_code == 403
    for host in ("localhost:8750", "[::1]:8750", "127.0.0.1"):
        assert client.get("/nodes/p1", headers={"Host": host}).status_code == 200


def test_cors_is_closed(client: httpx.Client) -> None:
    origin = {"Origin": "https://evil.example.org", "Access-Control-Request-Method": "POST"}
    preflight = client.options("/predict", headers=origin)
    assert preflight.status_code == 405
    for answer in (preflight, client.get("/nodes/p1", headers=origin)):
        assert not [name for name in answer.headers if name.startswith("access-control")]
    form = client.post("/predict", data={"ids": "p1"}, headers=origin)  # what a page may send without asking
    assert form.status_code == 415


def test_every_answer_has_the_headers(client: httpx.Client) -> None:
    for path in ("/", "/nodes/p1", "/nodes/nobody", "/nothing", "/metrics"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_a_fault_is_one_sentence(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(places) as client:
        service = client.service  # type: ignore[attr-defined]
        monkeypatch.setattr(service.state.answers, "scores", lambda rows: 1 / 0)
        answer = client.get("/nodes/p1")
        assert answer.status_code == 500
        assert answer.json() == {"error": "The server failed to answer this request. Its own output says why."}
        assert isinstance(client.faults[0], ZeroDivisionError)  # type: ignore[attr-defined]
        monkeypatch.undo()
        assert client.get("/nodes/p1").status_code == 200


def test_an_answer_that_takes_too_long(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(seconds=0.2, sending_seconds=0.2)
    with serving(places, limits=limits) as client:
        service = client.service  # type: ignore[attr-defined]
        right = service.state.answers.scores
        monkeypatch.setattr(service.state.answers, "scores", lambda rows: time.sleep(1) or right(rows))
        answer = client.get("/nodes/p1")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "too long" in answer.json()["error"]
