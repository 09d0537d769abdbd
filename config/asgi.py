"""ASGI: HTTP through Django, `/mcp` through the MCP server, websockets through channels.

The feed's consumer itself checks host, origin, session and token: a browser's socket counts only
from this installation's own pages, while programs with a token, which send no Origin, may connect
too.
"""

from __future__ import annotations

import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
_http = get_asgi_application()  # loads the apps: the imports below need them

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.urls import re_path  # noqa: E402

from config import mcp  # noqa: E402
from config.nowhere import nowhere  # noqa: E402
from teams.routing import websocket_urlpatterns  # noqa: E402

_mcp = mcp.McpApplication()


async def _by_path(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await (_mcp if scope["path"] == mcp.PATH else _http)(scope, receive, send)


application = ProtocolTypeRouter(
    {
        "http": _by_path,
        "websocket": AuthMiddlewareStack(
            URLRouter([*websocket_urlpatterns, re_path("", nowhere)])  # type: ignore[arg-type]
        ),
    }
)
