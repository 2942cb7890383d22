"""Places for the tests of data sets: real files, an empty cache, and a server on this machine."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REAL_ROOT = os.environ.get("POLYFORMER_DATA") or None  # taken now: tests with an empty cache hide the variable


@pytest.fixture
def real_root() -> Path:
    """The folder of real data sets."""
    if REAL_ROOT is None:
        pytest.skip("POLYFORMER_DATA is not set")
    return Path(REAL_ROOT)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no other data root, downloads allowed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("POLYFORMER_DATA", raising=False)
    monkeypatch.delenv("POLYFORMER_OFFLINE", raising=False)
    return tmp_path / "cache" / "polyformer" / "datasets"


@dataclass(frozen=True)
class Server:
    """Serves ``folder`` at ``url``; names in ``cut`` lose their second half after the length was announced."""

    url: str
    folder: Path
    cut: set[str]
    requests: list[str]


class _Handler(http.server.SimpleHTTPRequestHandler):
    cut: set[str]
    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.path.lstrip("/") not in self.cut:
            super().do_GET()
            return
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A web server on the loopback interface, stopped at the end of the test."""
    folder = tmp_path / "served"
    folder.mkdir()
    cut: set[str] = set()
    requests: list[str] = []
    handler = type("Handler", (_Handler,), {"cut": cut, "requests": requests})
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield Server(f"http://127.0.0.1:{httpd.server_address[1]}", folder, cut, requests)
    httpd.shutdown()
    httpd.server_close()
    thread.join()
