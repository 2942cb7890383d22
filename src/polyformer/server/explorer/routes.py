"""The addresses of the explorer: its page, the files of the page, and its data as JSON and as typed arrays."""

from __future__ import annotations

import json
from importlib import resources

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from polyformer.files.schema import Anything, ListOf, Object, TableOf
from polyformer.server.bodies import ID, read_body
from polyformer.server.explorer.live import LiveExplorer
from polyformer.server.guard import json_response
from polyformer.server.limits import Limits
from polyformer.server.pages import PAGE_HEADERS
from polyformer.server.parameters import whole_parameter
from polyformer.server.refusals import Refusal
from polyformer.server.service import Service

__all__ = ["routes"]

WHAT_IF = Object(
    {"id": ID},
    {"features": TableOf(Anything()), "add_edges": ListOf(ID), "remove_edges": ListOf(ID)},
    closed=True,
)

_STATIC = {
    "explorer.css": ("polyformer.server.explorer", "static", "text/css"),
    "map.js": ("polyformer.server.explorer", "static", "text/javascript"),
    "charts.js": ("polyformer.server.explorer", "static", "text/javascript"),
    "panel.js": ("polyformer.server.explorer", "static", "text/javascript"),
    "search.js": ("polyformer.server.explorer", "static", "text/javascript"),
    "explorer.js": ("polyformer.server.explorer", "static", "text/javascript"),
    "theme.css": ("polyformer.reports", "templates", "text/css"),
    "node_view.js": ("polyformer.reports", "templates", "text/javascript"),
}
"""Files that the page may load: package, folder and media type."""

_MOST_QUERY = 500
_MOST_EDGES = 200


def routes(service: Service, limits: Limits) -> list[BaseRoute]:
    """The routes of the explorer, all under ``/explorer``."""
    return _Routes(LiveExplorer(service), limits).routes()


def _file(package: str, folder: str, name: str) -> bytes:
    return resources.files(package).joinpath(folder, name).read_bytes()


class _Routes:
    """One method for each route; what takes long runs in another thread."""

    def __init__(self, live: LiveExplorer, limits: Limits) -> None:
        self._live, self._limits = live, limits

    def routes(self) -> list[BaseRoute]:
        data = "/explorer/data"
        return [
            Route("/explorer", self.page),
            Route("/explorer/static/{name}", self.static),
            Route(f"{data}/summary", self.summary),
            Route(f"{data}/places", self.places),
            Route(f"{data}/column", self.column),
            Route(f"{data}/search", self.search),
            Route(f"{data}/matches", self.matches),
            Route(f"{data}/row", self.row),
            Route(f"{data}/nodes/{{row:int}}", self.node),
            Route(f"{data}/nodes/{{row:int}}/neighbours", self.neighbours),
            Route(f"{data}/nodes/{{row:int}}/around", self.around),
            Route(f"{data}/what-if", self.what_if, methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        content = _file("polyformer.server.explorer", "static", "index.html")
        return Response(content, media_type="text/html", headers=PAGE_HEADERS)

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise Refusal(404, "There is no such file of the explorer.")
        package, folder, kind = _STATIC[name]
        return Response(_file(package, folder, name), media_type=kind)

    async def summary(self, request: Request) -> Response:
        return json_response(await run_in_threadpool(self._live.summary))

    async def places(self, request: Request) -> Response:
        return _binary(await run_in_threadpool(self._live.places))

    async def column(self, request: Request) -> Response:
        key = _text(request, "key")
        about, steps = await run_in_threadpool(self._live.column, key)
        # The head is as long as a multiple of 4 bytes, so that the steps can be read where they stand.
        head = json.dumps(about).encode()
        head += b" " * (-len(head) % 4)
        return _binary(len(head).to_bytes(4, "little") + head + steps)

    async def search(self, request: Request) -> Response:
        offset = whole_parameter(request, "offset", 0, 1 << 40)
        return json_response(await run_in_threadpool(self._live.search, _text(request, "q"), offset))

    async def matches(self, request: Request) -> Response:
        return _binary(await run_in_threadpool(self._live.matches, _text(request, "q")))

    async def row(self, request: Request) -> Response:
        return json_response({"row": self._live.row_of(_text(request, "id"))})

    async def node(self, request: Request) -> Response:
        row = request.path_params["row"]
        answer = await self._live.ask(row)
        return json_response(await run_in_threadpool(self._live.node, row, answer))

    async def neighbours(self, request: Request) -> Response:
        offset = whole_parameter(request, "offset", 0, 1 << 40)
        return json_response(self._live.neighbours(request.path_params["row"], offset))

    async def around(self, request: Request) -> Response:
        return _binary(await run_in_threadpool(self._live.around, request.path_params["row"]))

    async def what_if(self, request: Request) -> Response:
        body = await read_body(request, WHAT_IF, self._limits)
        add, remove = body.get("add_edges", []), body.get("remove_edges", [])
        if len(add) + len(remove) > _MOST_EDGES:
            raise Refusal(400, f"A question may change at most {_MOST_EDGES} edges. Got {len(add) + len(remove):,}.")
        features = body.get("features", {})
        return json_response(await run_in_threadpool(self._live.what_if, body["id"], features, add, remove))


def _binary(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream")


def _text(request: Request, name: str) -> str:
    text = request.query_params.get(name, "")
    if len(text) > _MOST_QUERY:
        raise Refusal(400, f"'{name}' must have at most {_MOST_QUERY} characters. Got {len(text):,}.")
    return text
