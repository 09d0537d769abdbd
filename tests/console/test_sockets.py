"""Websockets to addresses that nobody serves."""

from __future__ import annotations

import logging

import pytest
from channels.testing import WebsocketCommunicator

from config.asgi import application
from config.nowhere import NO_SUCH_ADDRESS


@pytest.mark.parametrize("address", ["/", "/ws/nope", "/ws/feed/x", "/admin/", "/%00"])
async def test_a_socket_to_nowhere_is_refused_without_a_word_in_the_log(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    socket = WebsocketCommunicator(application, address, headers=[(b"host", b"localhost")])
    with caplog.at_level(logging.WARNING):
        connected, code = await socket.connect(timeout=10)
    assert (connected, code) == (False, NO_SUCH_ADDRESS)
    assert not caplog.records
