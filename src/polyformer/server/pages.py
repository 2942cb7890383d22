"""A page about the server's addresses: plain HTML that needs no script and no network."""

from __future__ import annotations

import html
import json
from typing import Any

__all__ = ["api_page"]


def api_page(description: dict[str, Any]) -> str:
    """The OpenAPI description for people."""
    parts = []
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            parts.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            parts.append(f"<p>{html.escape(about['summary'])}</p>")
            parts += _parameters(about) + _body(about) + _responses(about)
    title = html.escape(f"{description['info']['title']} {description['info']['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>'
        f"<body><h1>{title}</h1><p>{html.escape(description['info']['description'])} "
        '<a href="openapi.json">openapi.json</a> says the same for programs.</p>' + "".join(parts) + "</body></html>"
    )


def _parameters(about: dict[str, Any]) -> list[str]:
    return [
        f"<p><code>{html.escape(part['name'])}</code> ({part['in']}): {html.escape(part['description'])}</p>"
        for part in about.get("parameters", ())
    ]


def _body(about: dict[str, Any]) -> list[str]:
    if "requestBody" not in about:
        return []
    schema = about["requestBody"]["content"]["application/json"]["schema"]
    return [f"<p>Body:</p><pre>{html.escape(json.dumps(schema, indent=1))}</pre>"]


def _responses(about: dict[str, Any]) -> list[str]:
    rows = (f"<li>{status}: {html.escape(part['description'])}</li>" for status, part in about["responses"].items())
    return ["<ul>", *rows, "</ul>"]
