"""The explorer: a page of the server over the whole graph.

Data of the explorer lie under ``/explorer/data/`` and need the token, if there is one. The page ``/explorer`` and what
lies under ``/explorer/static/`` hold no data and are shown to everybody.
"""

from __future__ import annotations

from polyformer.server.explorer.routes import routes

__all__ = ["routes"]
