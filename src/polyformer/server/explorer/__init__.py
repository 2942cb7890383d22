"""The explorer: a page of the server over the whole graph.

Data of the explorer lie under ``/explorer/data/`` and need the token, if there is one. The page ``/explorer`` and what
lies under ``/explorer/static/`` hold no data and are shown to everybody.
"""

from __future__ import annotations

from starlette.routing import BaseRoute

from polyformer.server.limits import Limits
from polyformer.server.service import Service

__all__ = ["routes"]


def routes(service: Service, limits: Limits) -> list[BaseRoute]:
    """The routes of the explorer, all under ``/explorer``."""
    return []
