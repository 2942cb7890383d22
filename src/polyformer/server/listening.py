"""An application on a port: connections that are slow, idle or too many are closed, and others still get through."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from polyformer.errors import InvalidParameter
from polyformer.server.guard import is_loopback
from polyformer.server.limits import Limits

__all__ = ["bind_port", "make_server"]

_QUEUED = 256


def bind_port(host: str, port: int, token: str | None) -> socket.socket:
    """A socket on a host and port, 0 for any free port; a host that others reach needs a token."""
    if not is_loopback(host) and token is None:
        raise InvalidParameter(
            f"'--host' {host} can be reached from other machines, so it needs '--token', which requests must carry. "
            f"Leave --host out to serve this machine alone."
        )
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() and " " not in token):
        raise InvalidParameter("'--token' must be made of ASCII letters, digits and signs, without spaces.")
    if not 0 <= port < 1 << 16:
        raise InvalidParameter(f"'--port' must lie in 0..65535. Got {port}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)[0]
        opened = socket.socket(family, kind, protocol)  # asyncio sends without delay where the protocol is named
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_QUEUED)
    except OSError as error:
        reason = (
            "another program uses it"
            if error.errno == errno.EADDRINUSE
            else f"the system says: {error.strerror or error}"
        )
        raise InvalidParameter(
            f"Port {port} of {host} cannot be served, because {reason}. Try another --port."
        ) from None
    opened.setblocking(False)
    return opened


def make_server(app: ASGIApp, limits: Limits) -> uvicorn.Server:
    """A server whose ``run(sockets=[…])`` answers until it is told to stop; open requests are finished first."""
    config = uvicorn.Config(
        app,
        http=_bounded_protocol(limits),
        ws="none",
        lifespan="off",
        interface="asgi3",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(limits.sending_seconds)),
        timeout_graceful_shutdown=max(1, round(limits.seconds)),
    )
    return uvicorn.Server(config)


def _answer(status: str, sentence: str) -> bytes:
    """A whole answer, for a connection on which no request can be answered."""
    body = json.dumps({"error": sentence}).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close"
    return head.encode() + b"\r\n\r\n" + body


_TOO_SLOW = _answer("408 Request Timeout", "The request did not arrive in time.")
_NO_HTTP = _answer("400 Bad Request", "This is no HTTP request that the server understands.")


def _bounded_protocol(limits: Limits) -> type[H11Protocol]:
    """Connections that must send a whole head in time, and of which there are at most so many."""
    silent: dict[BoundedProtocol, None] = {}  # in the order in which they fell silent

    class BoundedProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections and silent:
                next(iter(silent))._end()
            silent[self] = None
            self._deadline = self.loop.call_later(limits.sending_seconds, self._end)

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def handle_events(self) -> None:
            super().handle_events()
            if self.cycle is not None and not self.cycle.response_complete:
                self._forget()

        def on_response_complete(self) -> None:
            if not self.transport.is_closing():
                silent[self] = None
                self._deadline = self.loop.call_later(limits.sending_seconds, self._end)
            super().on_response_complete()

        def send_400_response(self, msg: str) -> None:
            self._forget()
            self.transport.write(_NO_HTTP)
            self.transport.close()

        def _forget(self) -> None:
            silent.pop(self, None)
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _end(self) -> None:
            """Close a connection on which no whole head of a request has arrived."""
            self._forget()
            if not self.transport.is_closing():
                if self.conn.our_state is h11.IDLE:
                    self.transport.write(_TOO_SLOW)
                self.transport.close()

    return BoundedProtocol
