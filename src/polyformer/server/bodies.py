"""Bodies of requests: what they may hold, and how they are read within the limits."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from polyformer.files.schema import Either, Flag, Kind, ListOf, Mismatch, Number, Object, TableOf, Text, Whole
from polyformer.new_nodes import MODES
from polyformer.server.limits import Limits
from polyformer.server.refusals import Refusal

__all__ = ["ID", "LARGEST_OFFSET", "PREDICT", "UPDATE", "read_body"]

LARGEST_OFFSET = 1 << 40

ID = Either((Whole(-(1 << 63), (1 << 63) - 1), Text()))
EDGE = ListOf(Either((ID, Number())))
FEATURES = Either((ListOf(Number()), TableOf()))
NEW_NODE = Object({"id": ID}, {"features": FEATURES}, closed=True)
PREDICT = Object(
    {},
    {"ids": ListOf(ID), "nodes": ListOf(NEW_NODE), "edges": ListOf(EDGE), "mode": Text(MODES)},
    closed=True,
)
LABEL = Either((Text(), Number(), Flag()))
GROWN_NODE = Object({"id": ID}, {"features": FEATURES, "label": LABEL | None, "split": Text() | None}, closed=True)
UPDATE = Object(
    {},
    {
        "add_nodes": ListOf(GROWN_NODE),
        "change_nodes": ListOf(GROWN_NODE),
        "remove_nodes": ListOf(ID),
        "add_edges": ListOf(EDGE),
        "change_edges": ListOf(EDGE),
        "remove_edges": ListOf(EDGE),
        "again": Flag(),
    },
    closed=True,
)

_DRAINED = 16
"""How many times the largest body is read and thrown away, so that a client that sends too much reads its answer."""


async def read_body(request: Request, kind: Kind, limits: Limits) -> Any:
    """The JSON body of a request, which is of this kind; anything else is refused with one sentence."""
    sort = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sort != "application/json":
        raise Refusal(415, "The body must be JSON. Send it with the header 'Content-Type: application/json'.")
    try:
        async with asyncio.timeout(limits.sending_seconds):
            data = await _read_bytes(request, limits.body_bytes)
    except TimeoutError:
        raise Refusal(
            408, f"The body did not arrive within {limits.sending_seconds:g} seconds.", {"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise Refusal(400, "The connection was closed before the body had arrived.") from None
    content = _parse(data)
    try:
        kind.check(content, "")
    except Mismatch as mismatch:
        raise Refusal(400, f"The body is not what this address takes: {mismatch}.") from None
    return content


async def _read_bytes(request: Request, most: int) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size <= most:
            pieces.append(piece)
        elif size > _DRAINED * most:
            break
    if size > most:
        raise Refusal(
            413, f"The body must have at most {most:,} bytes. Send several requests.", {"Connection": "close"}
        )
    return b"".join(pieces)


def _parse(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:  # no JSON, no UTF-8, nested too deep, or a number that no float can hold
        raise Refusal(400, f"The body is no JSON that can be read: {str(error)[:150].rstrip('.')}.") from None
