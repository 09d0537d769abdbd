"""A small Google on loopback for the demo: real requests, counted, and one answer that gets lost.

What it knows and answers is the product's own Google in memory; here it stands behind three ports,
one for each of Google's hosts. No setting and no command leads an installation to it: whoever
starts it has to register it in the very process that asks.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mail.gateways.google.client import GoogleClient
from mail.gateways.google.http import Host, HttpWire, Request
from mail.gateways.google.memory import MemoryGoogle, Person
from mail.registry import google, register_google

__all__ = ["MemoryGoogle", "Person", "small_google"]

_LOOPBACK = "127.0.0.1"


@contextmanager
def small_google() -> Iterator[MemoryGoogle]:
    """Answer on loopback while the block is open; everything in this process asks there."""
    known, before = MemoryGoogle(), google()
    servers = {host: _Server(known, host) for host in Host}
    for one in servers.values():
        threading.Thread(target=one.serve_forever, args=(0.05,), daemon=True).start()
    origins = {host: f"http://{_LOOPBACK}:{one.server_port}" for host, one in servers.items()}
    register_google(GoogleClient(HttpWire(origins)))
    try:
        yield known
    finally:
        register_google(before)
        for one in servers.values():
            one.shutdown()
            one.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, known: MemoryGoogle, host: Host) -> None:
        super().__init__((_LOOPBACK, 0), _Handler)
        self.known = known
        self.host = host


class _Handler(BaseHTTPRequestHandler):
    """Counts a request, acts, and answers, unless this answer is to get lost."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """A read."""
        self._serve()

    def do_POST(self) -> None:
        """A token, or a message to send."""
        self._serve()

    def log_message(self, format: str, *arguments: object) -> None:
        """The story is told elsewhere."""

    def _serve(self) -> None:
        self.close_connection = True
        known, request = self.server.known, self._request()
        endpoint = known.take(request).endpoint
        answered = known.answer(request)
        if known.is_lost(endpoint):
            return  # the connection ends without a word
        content = json.dumps(answered.document).encode()
        self.send_response(answered.status)
        self.send_header("content-type", "application/json; charset=UTF-8")
        self.send_header("content-length", str(len(content)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _request(self) -> Request:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        return Request(self.command, self.server.host, self.path, token, body)
