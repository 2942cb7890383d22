"""A page about the server's addresses: plain HTML that needs no script and no network."""

from __future__ import annotations

import html
import json
from typing import Any

__all__ = ["PAGE_HEADERS", "STYLE", "api_page", "front_page"]

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}
"""Headers of a page: it may load what this server has, and nothing else."""

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.3rem; border-top: 1px solid #8886; padding-top: 1rem; }
p, ul { margin: 0.3rem 0; }
pre { overflow-x: auto; max-height: 24rem; padding: 0.6rem; border: 1px solid #8886; border-radius: 4px; }
code, pre { font-size: 0.9em; }
"""


def front_page() -> str:
    """The page at the root: it names the other pages and holds no data."""
    return _page(
        "polyformer",
        '<p>This server answers for the nodes of a graph. <a href="docs">Its addresses</a>, '
        '<a href="explorer">the explorer</a>, <a href="health">its health</a>.</p>',
    )


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="docs.css">'
        f"</head><body><h1>{title}</h1>{body}</body></html>\n"
    )


def api_page(description: dict[str, Any]) -> str:
    """The OpenAPI description for people."""
    parts = []
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            parts.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            parts.append(f"<p>{html.escape(about['summary'])}</p>")
            parts += _parameters(about) + _body(about) + _responses(about)
    title = html.escape(f"{description['info']['title']} {description['info']['version']}")
    about = html.escape(description["info"]["description"])
    link = '<a href="openapi.json">openapi.json</a> says the same for programs.'
    return _page(title, f"<p>{about} {link}</p>{''.join(parts)}")


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
