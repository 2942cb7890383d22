"""The way in and out of every request: who may ask, for how long, and what every answer carries."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Callable
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyformer.errors import PolyformerError
from polyformer.server.limits import Limits
from polyformer.server.refusals import FAULT, Refusal, refusal_of
from polyformer.server.telemetry import Telemetry

__all__ = ["Guard", "is_loopback", "json_response"]

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-store",
}
"""Headers of every answer that does not set them itself."""

_PUBLIC = {"/", "/health", "/docs.css", "/explorer"}
"""Pages that hold no data: a browser shows them before it knows the token."""

_PUBLIC_FOLDER = "/explorer/static/"


_TOO_LONG = Refusal(503, "The answer took too long. Ask for less, or try again later.", {"Retry-After": "5"})
_TOO_LONG_UPDATE = Refusal(
    503,
    "The change is still being applied. Send the same body again later: a change is not applied twice.",
    {"Retry-After": "60"},
)


class Guard:
    """Lets requests through to an application, and gives every error one sentence.

    Args:
        app: the routes.
        limits: bounds on time and on requests that wait.
        telemetry: is told of every answer.
        token: what a request must carry as ``Authorization: Bearer …``; None asks for nothing, and then answers go only
            to requests that name a loopback host: no page of another site reaches this server under a name of its own.
        complain: hears of faults of this program, with the exception.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        telemetry: Telemetry,
        token: str | None,
        complain: Callable[[BaseException], None],
    ) -> None:
        self._app, self._limits, self._telemetry, self._complain = app, limits, telemetry, complain
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        status = 0
        inner = {**scope, "app": self}  # "app" makes the routes raise what they refuse, instead of answering it

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name.lower() for name, _ in message["headers"]}
                extra = [
                    (n.lower().encode(), v.encode()) for n, v in _HEADERS.items() if n.lower().encode() not in given
                ]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        try:
            refusal = await self._try(inner, receive, send_guarded)
            if refusal is not None and status == 0:
                await _response_of(refusal)(scope, receive, send_guarded)
        finally:
            name = getattr(inner.get("endpoint"), "__name__", "other")
            self._telemetry.answered(name, status or 499, time.perf_counter() - began)

    async def _try(self, scope: Scope, receive: Receive, send: Send) -> Refusal | None:
        updating = scope["path"] == "/updates"
        try:
            self._admit(scope)
            seconds = self._limits.update_seconds if updating else self._limits.seconds
            async with asyncio.timeout(seconds + self._limits.sending_seconds):
                await self._app(scope, receive, send)
        except Refusal as refusal:
            return refusal
        except HTTPException as error:
            return _refusal_of_route(error, scope)
        except PolyformerError as error:
            told = refusal_of(error)
            if told is FAULT:
                self._complain(error)
            return told
        except TimeoutError:
            return _TOO_LONG_UPDATE if updating else _TOO_LONG
        except Exception as error:
            self._complain(error)
            return FAULT
        return None

    def _admit(self, scope: Scope) -> None:
        """Refuse a request that does not carry the token, or names a host that is not this machine."""
        headers = dict(scope["headers"])
        if self._token is None:
            host = headers.get(b"host", b"").decode("latin-1")
            if not is_loopback(_host_name(host)):
                raise Refusal(
                    403,
                    "Without a token this server answers on localhost alone. Start it with --token for other names.",
                )
            return
        path: str = scope["path"]
        if path in _PUBLIC or path.startswith(_PUBLIC_FOLDER):
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        right = hmac.compare_digest(given.strip(), self._token)
        if scheme.lower() != b"bearer" or not right:
            raise Refusal(
                401,
                "This server needs its token. Send the header 'Authorization: Bearer TOKEN'.",
                {"WWW-Authenticate": "Bearer"},
            )


def is_loopback(host: str) -> bool:
    """Whether a host is this very machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(header: str) -> str:
    """The name in a Host header, without its port.

    >>> _host_name("[::1]:8750"), _host_name("localhost:8750")
    ('::1', 'localhost')
    """
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _refusal_of_route(error: HTTPException, scope: Scope) -> Refusal:
    if error.status_code == 405:
        sentence = f"This address does not take the method {scope['method'][:20]}."
        return Refusal(405, sentence, dict(error.headers or {}))
    return Refusal(404, "There is nothing at this address. GET /docs lists what there is.")


def _response_of(refusal: Refusal) -> Response:
    return json_response({"error": refusal.sentence}, refusal.status, refusal.headers)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as every program can read it: arrays are lists, numbers that are infinite or no numbers are null."""
    return Response(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), status, headers, "application/json")
