"""Places that all tests of the server share; a test that changes them takes a copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.served import make_places, serving


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_places(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def client(places: Path) -> Iterator[httpx.Client]:
    """A client of a server that only reads, from stored tokens."""
    with serving(places) as opened:
        yield opened
        assert opened.faults == []  # type: ignore[attr-defined]
