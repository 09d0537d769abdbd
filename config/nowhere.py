"""Websockets to addresses that do not exist: refused in silence.

Channels raises there, which anybody could use to fill the log with tracebacks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

#: The close code for an address that does not exist.
NO_SUCH_ADDRESS = 4404


async def nowhere(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    """Refuse the handshake."""
    await receive()
    await send({"type": "websocket.close", "code": NO_SUCH_ADDRESS})
