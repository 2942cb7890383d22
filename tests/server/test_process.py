"""``polyformer serve`` as a process of its own: an end when it is told, and no update lost by a kill."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from tests.server.served import copy_of
from tests.warm import WarmProcess

pytestmark = pytest.mark.slow
NODE = {"features": {"age": 31, "city": "c1", "since": "2012-01-05"}}


def started(process: WarmProcess) -> httpx.Client:
    """A client of a server process, once it says where it serves."""
    address = re.compile(r"serving (http://\S+),")
    process.wait_until(lambda: address.search(process.output) is not None)
    found = address.search(process.output)
    assert found is not None
    process.wait_until(lambda: _answers(found[1]))
    return httpx.Client(base_url=found[1], trust_env=False, timeout=30)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def options(place: Path) -> list[str]:
    return [str(place / "run"), "--graph", str(place / "graph"), "--tokens", str(place / "tokens"), "--port", "0"]


def test_a_process_serves_until_it_is_told_to_stop(places: Path) -> None:
    with WarmProcess("serve", *options(places)) as process:
        with started(process) as client:
            assert client.get("/nodes/p1").status_code == 200
        process.signal(signal.SIGTERM)
        assert process.wait() in (0, -signal.SIGTERM)
        assert process.errors == ""


def test_a_kill_loses_no_acknowledged_update(places: Path, tmp_path: Path) -> None:
    """Killed three times while it updates; the last start finds every node that was acknowledged."""
    place, acknowledged, drawn = copy_of(places, tmp_path), list[str](), random.Random()
    for turn in range(3):
        with WarmProcess("serve", *options(place), "--writable") as process, started(process) as client:
            ends = time.monotonic() + drawn.uniform(0.3, 1.0)
            number = 0
            while time.monotonic() < ends or number < 2:
                name = f"new-{turn}-{number}"
                number += 1
                body = {"add_nodes": [{"id": name, **NODE}], "add_edges": [[name, "p1"]]}
                if client.post("/updates", json=body).status_code == 200:
                    acknowledged.append(name)
            client.close()
            with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as last:  # killed while it updates
                body = {"add_nodes": [{"id": f"last-{turn}", **NODE}]}
                text = json.dumps(body).encode()
                head = f"POST /updates HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n"
                last.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + text)
                time.sleep(drawn.uniform(0, 0.1))
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
    with WarmProcess("serve", *options(place), "--writable") as process, started(process) as client:
        answer = client.post("/predict", json={"ids": acknowledged})
        assert answer.status_code == 200, answer.text
        for name in acknowledged[:: max(1, len(acknowledged) // 5)]:
            assert client.get(f"/nodes/{name}").json()["neighbours"]["ids"] == ["p1"]
    assert len(acknowledged) >= 6
