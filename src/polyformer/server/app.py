"""The routes of the server, as an ASGI application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from polyformer.machine import resident_bytes
from polyformer.server import explorer
from polyformer.server.bodies import LARGEST_OFFSET, PREDICT, UPDATE, read_body
from polyformer.server.description import describe_api
from polyformer.server.guard import Guard, json_response
from polyformer.server.limits import Limits
from polyformer.server.pages import PAGE_HEADERS, STYLE, api_page, front_page
from polyformer.server.parameters import whole_parameter
from polyformer.server.refusals import Refusal
from polyformer.server.service import NEIGHBOURS, Service
from polyformer.server.telemetry import Telemetry

__all__ = ["make_app"]


def make_app(
    service: Service,
    limits: Limits | None = None,
    token: str | None = None,
    complain: Callable[[BaseException], None] = lambda _: None,
) -> ASGIApp:
    """The application that answers for a service.

    Args:
        limits: bounds on requests; the defaults of :class:`Limits`.
        token: what requests must carry; see :class:`Guard`.
        complain: hears of faults of this program.
    """
    bounds = Limits() if limits is None else limits
    telemetry = Telemetry()
    routes = [*_Api(service, bounds, telemetry).routes(), *explorer.routes(service, bounds)]
    return Guard(Router(routes, redirect_slashes=False), bounds, telemetry, token, complain)


class _Api:
    """One method for each route."""

    def __init__(self, service: Service, limits: Limits, telemetry: Telemetry) -> None:
        self._service, self._limits, self._telemetry = service, limits, telemetry

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self.front),
            Route("/docs", self.docs),
            Route("/docs.css", self.style),
            Route("/openapi.json", self.openapi),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/nodes/{id:path}", self.node),
            Route("/neighbours/{id:path}", self.neighbours),
            Route("/predict", self.predict, methods=["POST"]),
            Route("/updates", self.update, methods=["POST"]),
        ]

    async def front(self, request: Request) -> Response:
        return Response(front_page(), media_type="text/html", headers=PAGE_HEADERS)

    async def docs(self, request: Request) -> Response:
        page = api_page(describe_api(self._service, self._limits))
        return Response(page, media_type="text/html", headers=PAGE_HEADERS)

    async def style(self, request: Request) -> Response:
        return Response(STYLE, media_type="text/css")

    async def openapi(self, request: Request) -> Response:
        return json_response(describe_api(self._service, self._limits))

    async def health(self, request: Request) -> Response:
        return json_response({"status": "ok", "version": self._service.state.version})

    async def metrics(self, request: Request) -> Response:
        about, batcher = self._service.about(), self._service.batcher
        text = self._telemetry.text(
            [
                ("polyformer_nodes", "gauge", "Nodes of the graph.", about["nodes"]),
                ("polyformer_edges", "gauge", "Edges of the graph.", about["edges"]),
                ("polyformer_graph_version", "gauge", "Changes that the graph has seen.", about["version"]),
                ("polyformer_batches_total", "counter", "Batches of the model.", batcher.batches),
                ("polyformer_batched_requests_total", "counter", "Requests in these batches.", batcher.questions),
                ("polyformer_batched_rows_total", "counter", "Nodes in these batches.", batcher.rows),
                ("polyformer_waiting_requests", "gauge", "Requests that wait for the model.", batcher.waiting),
                ("process_resident_memory_bytes", "gauge", "Memory of this process.", resident_bytes()),
                ("process_start_time_seconds", "gauge", "When this process began to serve.", self._telemetry.began),
            ]
        )
        return Response(text, media_type="text/plain; version=0.0.4")

    async def node(self, request: Request) -> Response:
        self._refuse_crowd()
        return json_response(await self._service.node(self._id(request)))

    async def neighbours(self, request: Request) -> Response:
        limit = whole_parameter(request, "limit", NEIGHBOURS, self._limits.ids, least=1)
        offset = whole_parameter(request, "offset", 0, LARGEST_OFFSET)
        return json_response(self._service.neighbours(self._id(request), limit, offset))

    async def predict(self, request: Request) -> Response:
        self._refuse_crowd()
        body, limits = await read_body(request, PREDICT, self._limits), self._limits
        if ("ids" in body) == ("nodes" in body):
            raise Refusal(
                400, "The body must have 'ids', of nodes of the graph, or 'nodes', that are new; one of both."
            )
        if "ids" in body:
            if len(body) > 1:
                raise Refusal(400, "'edges' and 'mode' go with 'nodes', that are new. Leave them out.")
            bounded("ids", body["ids"], limits.ids, least=1)
            return json_response(await self._service.predict(body["ids"]))
        bounded("nodes", body["nodes"], limits.new_nodes, least=1)
        bounded("edges", body.get("edges", []), limits.edges)
        return json_response(await self._service.predict_new(body))

    async def update(self, request: Request) -> Response:
        if not self._service.writable:
            raise Refusal(403, "This server does not change its graph. Start it with --writable for updates.")
        body = await read_body(request, UPDATE, self._limits)
        for name, values in body.items():
            if isinstance(values, list):
                bounded(name, values, self._limits.most(name))
        return json_response(await self._service.update(body))

    def _id(self, request: Request) -> Any:
        return self._service.state.names.parse(request.path_params["id"])

    def _refuse_crowd(self) -> None:
        if self._service.batcher.waiting >= self._limits.waiting:
            raise Refusal(503, "The server has too many requests. Try again in a moment.", {"Retry-After": "1"})


def bounded(name: str, values: list[Any], most: int, least: int = 0) -> None:
    """Refuse a list of a request that is too long or too short."""
    if not least <= len(values) <= most:
        raise Refusal(400, f"'{name}' must have {least} to {most:,} entries. Got {len(values):,}.")
