"""What all contracts of models share: the model of the pages in the table, and a cache of their own."""

from __future__ import annotations

import pytest

from polyformer.models import MODELS
from tests import recipes


@pytest.fixture(autouse=True)
def _with_the_model_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes.MODEL.register(MODELS, monkeypatch)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "models-cache"))
