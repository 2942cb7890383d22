"""Two runs that are served for all tests of the explorer."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from polyformer.runs.run import Run
from polyformer.server.service import Service
from polyformer.user_cache import PRECOMPUTED_VARIABLE
from tests.server.explorer.served import make_board, make_people, serving, wait_until_whole


@pytest.fixture(scope="package", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PRECOMPUTED_VARIABLE, str(tmp_path_factory.mktemp("maps")))
        yield


@pytest.fixture(scope="package")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Service]]:
    """The address and the service of a grid of cells."""
    with serving(make_board(tmp_path_factory.mktemp("board"))) as served:
        with httpx.Client(base_url=served[0], timeout=30, trust_env=False) as client:
            wait_until_whole(client)
        yield served


@pytest.fixture(scope="session")
def people_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on a table."""
    return make_people(tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="package")
def people(people_run: Run) -> Iterator[tuple[str, Service]]:
    """The address and the service of a graph from a table."""
    with serving(people_run) as served:
        with httpx.Client(base_url=served[0], timeout=30, trust_env=False) as client:
            wait_until_whole(client)
        yield served


@pytest.fixture
def client(people: tuple[str, Service]) -> Iterator[httpx.Client]:
    """A client of the graph from a table."""
    with httpx.Client(base_url=people[0], timeout=30, trust_env=False) as client:
        yield client
