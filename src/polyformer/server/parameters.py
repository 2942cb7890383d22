"""Parameters in the query of an address."""

from __future__ import annotations

from starlette.requests import Request

from polyformer.server.refusals import Refusal

__all__ = ["whole_parameter"]


def whole_parameter(request: Request, name: str, default: int, most: int, least: int = 0) -> int:
    """A whole number of the query of an address."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16 and least <= int(text) <= most):
        raise Refusal(400, f"'{name}' must be a whole number from {least} to {most:,}. Got '{text[:60]}'.")
    return int(text)
