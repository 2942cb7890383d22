"""Whatever a client sends, the answer is a 4xx with one sentence and the server stays up."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from polyformer.server.limits import Limits
from tests.server.served import serving

JSON = {"Content-Type": "application/json"}
SHORT = Limits(body_bytes=1 << 16, ids=50, new_nodes=3, edges=5, sending_seconds=1.0, connections=30)


@pytest.fixture(scope="module")
def strict(places: Path) -> Iterator[httpx.Client]:
    with serving(places, limits=SHORT) as client:
        yield client
        assert client.faults == []  # type: ignore[attr-defined]


def refused(answer: httpx.Response, status: int, words: str = "") -> None:
    sentence = answer.json()["error"]
    assert (answer.status_code, words in sentence) == (status, True), sentence
    assert sentence.endswith(".")
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b'{"ids": [NaN]}', "is no JSON"),
        (b"[" * 50_000, "is no JSON"),
        (b'{"ids": [' + b"9" * 6000 + b"]}", "is no JSON"),
        (b"[]", "no JSON object"),
        (b'{"ids": 3}', "'ids' must be a list"),
        (b'{"ids": []}', "1 to 50 entries"),
        (b'{"ids": [true]}', "'ids[0]' must be a text"),
        (b'{"ids": [1.5]}', "'ids[0]' must be a text"),
        (b'{"ids": [1]}', "ids of this graph are texts"),
        (b'{"ids": [""]}', "1 to 1,000 characters"),
        (b'{"ids": ["p1"], "edges": []}', "Leave them out"),
        (b'{"ids": ["p1"], "nodes": []}', "one of both"),
        (b"{}", "one of both"),
        (b'{"nodes": [{"id": "x", "features": 3}]}', "'nodes[0].features'"),
        (b'{"nodes": [{"id": "x"}]}', "has no 'features'"),
        (b'{"nodes": [{"features": []}]}', "it has no 'id'"),
        (b'{"nodes": [{"id": "x", "features": {}}], "mode": "warm"}', "one of frozen, full"),
    ],
)
def test_a_wrong_body(strict: httpx.Client, body: bytes, words: str) -> None:
    refused(strict.post("/predict", content=body, headers=JSON), 400, words)
    assert strict.get("/health").status_code == 200


def test_unknown_nodes_and_addresses(strict: httpx.Client) -> None:
    refused(strict.get("/nodes/nobody"), 404, "no node 'nobody'")
    refused(strict.get("/nodes/"), 400, "1 to 1,000 characters")
    refused(strict.get("/nodes/" + "x" * 5000), 400, "1 to 1,000 characters")
    refused(strict.post("/predict", json={"ids": ["p1", "x", "y"]}), 404, "nor 1 others of the 3 ids")
    refused(strict.get("/neighbours/p1?limit=-1"), 400, "'limit' must be a whole number")
    refused(strict.get("/neighbours/p1?offset=" + "9" * 30), 400, "'offset'")
    for path in (
        "/etc/passwd",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/../app.py",
        "/explorer/static/..%2fapp.py",
    ):
        refused(strict.get(path), 404)
    refused(strict.delete("/predict"), 405, "DELETE")
    refused(strict.post("/predict", content=b"ids=1"), 415, "application/json")


def test_too_much_in_one_request(strict: httpx.Client) -> None:
    refused(strict.post("/predict", json={"ids": ["p1"] * 51}), 400, "1 to 50 entries. Got 51")
    node = {"features": {"age": 1, "city": "c1", "since": "2012-01-05"}}
    nodes = [{"id": f"n{i}", **node} for i in range(4)]
    refused(strict.post("/predict", json={"nodes": nodes}), 400, "1 to 3 entries. Got 4")
    edges = [["n0", "p1"]] * 6
    refused(strict.post("/predict", json={"nodes": nodes[:1], "edges": edges}), 400, "0 to 5 entries. Got 6")


def test_a_body_of_ten_megabytes(client: httpx.Client) -> None:
    refused(client.post("/predict", content=b" " * 10_000_000, headers=JSON), 413, "at most 4,194,304 bytes")
    assert client.get("/health").status_code == 200


def connect(client: httpx.Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=10)


def test_slow_connections_do_not_keep_others_out(strict: httpx.Client) -> None:
    """A hundred connections that send half a head, where thirty may be open: others are answered all the same."""
    slow = [connect(strict) for _ in range(100)]
    try:
        for one in slow:
            one.sendall(b"GET /health HTT")
        for _ in range(5):
            began = time.perf_counter()
            with httpx.Client(base_url=strict.base_url, trust_env=False) as fresh:
                assert fresh.get("/health").status_code == 200
            assert time.perf_counter() - began < 5
        slow[-1].settimeout(10)
        assert b"408" in slow[-1].recv(1000)  # those that stayed are told after a second
    finally:
        for one in slow:
            one.close()


def test_thousands_of_slow_connections(places: Path) -> None:
    """Two thousand half heads under the limits that a server starts with: one that asks is answered meanwhile."""
    resource = pytest.importorskip("resource")
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < 4096:
        pytest.skip(f"a process may open {most} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, most))
    slow: list[socket.socket] = []
    try:
        with serving(places) as client:
            for number in range(2000):
                slow.append(connect(client))
                slow[-1].sendall(b"GET /nodes/p1 HTT")
                if number % 500 == 499:
                    with httpx.Client(base_url=client.base_url, trust_env=False, timeout=5) as fresh:
                        assert fresh.get("/nodes/p1").status_code == 200
            assert sum(_is_open(one) for one in slow) <= Limits().connections
            assert client.faults == []  # type: ignore[attr-defined]
    finally:
        for one in slow:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True  # nothing has come, not even the end
    except OSError:
        pass
    return False


def test_a_slow_body(strict: httpx.Client) -> None:
    with connect(strict) as slow:
        slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        slow.sendall(b'Content-Length: 20\r\n\r\n{"ids"')
        answer = b""
        while b"seconds" not in answer and (part := slow.recv(10_000)):  # head and body may come apart
            answer += part
        assert b" 408 " in answer
        assert b"did not arrive within 1 seconds" in answer


def test_what_is_no_http(strict: httpx.Client) -> None:
    with connect(strict) as other:
        other.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert b"400 Bad Request" in other.recv(10_000)
    with connect(strict) as other:
        other.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 200_000)
        assert b"400 Bad Request" in other.recv(10_000)
    assert strict.get("/health").status_code == 200
