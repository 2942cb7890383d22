"""The OpenAPI description of the server, made from what the server checks."""

from __future__ import annotations

from typing import Any

from polyformer.files.schema import Anything, Either, Flag, Kind, ListOf, Nullable, Number, Object, TableOf, Text, Whole
from polyformer.server.bodies import ID, LARGEST_OFFSET, PREDICT, UPDATE
from polyformer.server.limits import Limits
from polyformer.server.service import Service
from polyformer.version import __version__

__all__ = ["describe_api", "schema_of"]


def schema_of(kind: Kind) -> dict[str, Any]:
    """A kind as JSON Schema.

    >>> schema_of(ListOf(Whole(0, 9)))
    {'type': 'array', 'items': {'type': 'integer', 'minimum': 0, 'maximum': 9}}
    """
    if isinstance(kind, Text):
        return {"type": "string", "enum": list(kind.choices)} if kind.choices else {"type": "string"}
    if isinstance(kind, Whole):
        return {"type": "integer", "minimum": kind.least, "maximum": kind.most}
    if isinstance(kind, Number):
        return {"type": "number"}
    if isinstance(kind, Flag):
        return {"type": "boolean"}
    if isinstance(kind, ListOf):
        length = {} if kind.length is None else {"minItems": kind.length, "maxItems": kind.length}
        return {"type": "array", "items": schema_of(kind.kind), **length}
    if isinstance(kind, Nullable):
        return {"anyOf": [schema_of(kind.kind), {"type": "null"}]}
    if isinstance(kind, Either):
        return {"anyOf": [schema_of(part) for part in kind.kinds]}
    if isinstance(kind, TableOf):
        return {"type": "object", "additionalProperties": schema_of(kind.kind)}
    if isinstance(kind, Object):
        parts = {**kind.fields, **kind.optional}
        return {
            "type": "object",
            "properties": {name: schema_of(part) for name, part in parts.items()},
            "required": list(kind.fields),
            "additionalProperties": not kind.closed,
        }
    assert isinstance(kind, Anything), kind
    return {}


def describe_api(service: Service, limits: Limits) -> dict[str, Any]:
    """The OpenAPI description of what is served now."""
    id_type = "string" if service.state.names.text else "integer"
    node = {"name": "id", "in": "path", "required": True, "schema": {"type": id_type}, "description": "Your node id."}
    paging = [
        _query("limit", "How many neighbours to list.", 1, limits.ids),
        _query("offset", "The place of the first one to list.", 0, LARGEST_OFFSET),
    ]
    predict, update = (_with_ids(schema_of(kind), id_type) for kind in (PREDICT, UPDATE))
    _bound(predict, {"ids": limits.ids, "nodes": limits.new_nodes, "edges": limits.edges})
    _bound(update, {name: limits.most(name) for name in update["properties"]})
    new = "nodes of the graph ('ids'), or of nodes that are not in it ('nodes', their 'edges', and 'mode')"
    paths = {
        "/nodes/{id}": _get("One node: prediction, probabilities, filter, label, neighbours.", "node", [node], (404,)),
        "/neighbours/{id}": _get("Neighbours of a node, page by page.", "neighbours", [node, *paging], (400, 404)),
        "/predict": _post(f"Predictions of {new}.", "predict", (400, 404, 408, 413, 415), predict),
        "/updates": _post(
            "Change the graph; answered when the change is on the disk and is served. Needs --writable.",
            "update",
            (400, 404, 408, 409, 413, 415),
            update,
        ),
        "/health": _get("Whether the server answers, and the version of the graph.", "health"),
        "/metrics": _get("Counts for Prometheus.", "metrics", media="text/plain"),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "polyformer", "version": __version__, "description": _about(service)},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _about(service: Service) -> str:
    about = service.about()
    ids = "texts" if service.state.names.text else "whole numbers"
    return (
        f"Predictions of the model '{about['model']}' for {about['nodes']:,} nodes. Node ids are {ids}. Features of "
        f"new nodes are {service.features.wanted}. Every refusal is JSON with one sentence as 'error'."
    )


def _with_ids(schema: Any, id_type: str) -> Any:
    """The same schema, in which an id is what ids of this graph are: texts, or whole numbers."""
    any_id = schema_of(ID)
    if schema == any_id:
        return next(part for part in any_id["anyOf"] if part["type"] == id_type)
    if isinstance(schema, dict):
        return {name: _with_ids(part, id_type) for name, part in schema.items()}
    return [_with_ids(part, id_type) for part in schema] if isinstance(schema, list) else schema


def _bound(schema: dict[str, Any], most: dict[str, int]) -> None:
    """Say how long the lists of a body may be."""
    for name, part in schema["properties"].items():
        if part.get("type") == "array":
            part["maxItems"] = most[name]


def _query(name: str, meaning: str, least: int, most: int) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": meaning}


def _get(
    summary: str,
    name: str,
    parameters: list[dict[str, Any]] | None = None,
    refusals: tuple[int, ...] = (),
    media: str = "application/json",
) -> dict[str, Any]:
    about = _operation(summary, name, refusals, media)
    return {"get": about | ({"parameters": parameters} if parameters else {})}


def _post(summary: str, name: str, refusals: tuple[int, ...], body: dict[str, Any]) -> dict[str, Any]:
    content = {"required": True, "content": {"application/json": {"schema": body}}}
    return {"post": _operation(summary, name, refusals, "application/json") | {"requestBody": content}}


def _operation(summary: str, name: str, refusals: tuple[int, ...], media: str) -> dict[str, Any]:
    sentence = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    responses: dict[str, Any] = {"200": {"description": "The answer.", "content": {media: {}}}}
    for status in sorted({*refusals, 401, 403, 503}):
        content = {"application/json": {"schema": sentence}}
        responses[str(status)] = {"description": _MEANINGS[status], "content": content}
    return {"summary": summary, "operationId": name, "responses": responses}


_MEANINGS = {
    400: "The request is not what this address takes.",
    401: "The token is missing or wrong.",
    403: "The server was not started for this.",
    404: "The graph has no such node.",
    408: "The body did not arrive in time.",
    409: "The graph is being changed, or has this change already.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    503: "The server is busy.",
}
