"""Requests made from the server's own OpenAPI description, right and wrong: never a 5xx, always one sentence."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.server.served import copy_of, serving

REQUESTS = 400
TEXTS = [
    "",
    "p1",
    "p2",
    "zoe",
    "c1",
    "a/b <i>&ü",
    "\0",
    "\ud800",
    "x" * 2000,
    "2012-01-05",
    "'",
    "%00",
    "..",
    "-1",
    "1e5",
]
NUMBERS = [0, 1, -1, 0.5, 1e300, -1e-300, 2**31, 2**63, -(2**63) - 1, 10**40]
ANYTHING = [None, True, False, [], {}, [[]], {"": 0}, *NUMBERS, *TEXTS]
KNOWN = {"features": {"age": 3, "city": "c1", "since": "2012-01-05"}, "label": "yes", "split": "train"}


class Maker:
    """Values of a JSON Schema; now and then something else."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, schema: dict[str, Any], name: str = "") -> Any:
        if self.random.random() < 0.03:
            return self.random.choice(ANYTHING)
        if name in KNOWN and self.random.random() < 0.6:
            return KNOWN[name]
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        if "anyOf" in schema:
            return self.value(self.random.choice(schema["anyOf"]), name)
        make = getattr(self, f"_{schema.get('type', 'anything')}")
        return make(schema)

    def _anything(self, schema: dict[str, Any]) -> Any:
        return self.random.choice(ANYTHING)

    def _null(self, schema: dict[str, Any]) -> None:
        return None

    def _boolean(self, schema: dict[str, Any]) -> bool:
        return self.random.random() < 0.5

    def _string(self, schema: dict[str, Any]) -> str:
        return f"p{self.random.randrange(70)}" if self.random.random() < 0.8 else self.random.choice(TEXTS)

    def _integer(self, schema: dict[str, Any]) -> int:
        least, most = schema.get("minimum", -9), schema.get("maximum", 9)
        return self.random.choice([least, most, 0, 1, 5, least - 1, most + 1])

    def _number(self, schema: dict[str, Any]) -> float:
        return self.random.choice(NUMBERS)

    def _array(self, schema: dict[str, Any]) -> list[Any]:
        return [self.value(schema["items"]) for _ in range(self.random.choice([0, 1, 2, 2, 3]))]

    def _object(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "properties" not in schema:
            return {self.random.choice(["age", "city", "since", *TEXTS]): self.value({}) for _ in range(2)}
        needed, parts = schema.get("required", []), schema["properties"]
        chosen = {name for name in parts if name in needed or self.random.random() < 0.4}
        return {name: self.value(part, name) for name, part in parts.items() if name in chosen}

    def request(self, description: dict[str, Any]) -> tuple[str, str, bytes | None]:
        """A method, an address and a body."""
        path = self.random.choice(sorted(description["paths"]))
        [(method, about)] = description["paths"][path].items()
        query = []
        for parameter in about.get("parameters", ()):
            text = str(self.value(parameter["schema"])).encode("utf-8", "replace").decode()
            if parameter["in"] == "path":
                path = path.replace("{id}", quote(text, safe=self.random.choice(["", "/"])))
            elif self.random.random() < 0.7:
                query.append(f"{parameter['name']}={quote(text)}")
        if self.random.random() < 0.03:
            method = self.random.choice(["get", "post", "put", "delete", "patch", "options", "trace"])
        body = None
        if "requestBody" in about:
            body = json.dumps(self.value(about["requestBody"]["content"]["application/json"]["schema"])).encode()
            if self.random.random() < 0.05:
                body = body[: self.random.randrange(len(body) + 1)]
        return method.upper(), path + ("?" + "&".join(query) if query else ""), body


@pytest.fixture(scope="module")
def changing(places: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(copy_of(places, tmp_path_factory.mktemp("fuzz")), writable=True) as client:
        yield client


@pytest.mark.slow
def test_no_request_makes_the_server_fail(changing: httpx.Client) -> None:
    """Each request is right or refused; the statuses are those that the description names."""
    description = changing.get("/openapi.json").json()
    maker, seen = Maker(7), set()
    for _ in range(REQUESTS):
        method, path, body = maker.request(description)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        answer = changing.request(method, path, content=body, headers=headers)
        assert answer.status_code < 500, (method, path, body, answer.text, changing.faults)  # type: ignore[attr-defined]
        seen.add(answer.status_code)
        if answer.status_code >= 400 and method != "HEAD":
            assert answer.json()["error"].endswith("."), (method, path, body)
            assert "\n" not in answer.json()["error"]
    assert {200, 400, 404} <= seen
    assert changing.get("/health").json()["version"] > 0  # some changes were right
    assert changing.faults == []  # type: ignore[attr-defined]


def test_the_description_names_every_route(client: httpx.Client) -> None:
    described = set(client.get("/openapi.json").json()["paths"])
    assert described == {"/nodes/{id}", "/neighbours/{id}", "/predict", "/updates", "/health", "/metrics"}


def test_the_description_says_what_an_id_is(client: httpx.Client) -> None:
    """The ids of this graph are texts, so a program that follows the description sends no numbers."""
    body = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["requestBody"]
    parts = body["content"]["application/json"]["schema"]["properties"]
    assert parts["ids"]["items"] == {"type": "string"}
    assert parts["nodes"]["items"]["properties"]["id"] == {"type": "string"}
    assert parts["edges"]["items"]["items"] == {"anyOf": [{"type": "string"}, {"type": "number"}]}
