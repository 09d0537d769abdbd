"""Whether our MCP server is there, asked before a worker gets through its doors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipelines.exceptions import ServerMissing
from pipelines.runners.claude import reception

ANSWER = b'{"jsonrpc": "2.0", "id": 1, "result": {}}'


class Answering(BaseHTTPRequestHandler):
    """Answers as its server's name for it says; never logs."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        getattr(self, self.path.strip("/"))()

    def ours(self) -> None:
        known = self.headers["Authorization"] == "Bearer known"
        self._say(ANSWER if known else b"{}", 200 if known else 401)

    def pages(self) -> None:
        self._say(b"<html>", 200)

    def refusals(self) -> None:
        self._say(b'{"error": {}}', 200)

    def endless(self) -> None:
        """A stream of events that always has one more to tell."""
        self.send_response(200)
        self.end_headers()
        try:
            while not self.server.over.wait(0.005):
                self.wfile.write(b": still here\n\n")
        except OSError:
            return

    def _say(self, body: bytes, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Nothing to say."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as listening:
        listening.over = threading.Event()
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield listening
        listening.over.set()
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "token", "lets_in"),
    [
        ("ours", "known", True),
        ("ours", "unknown", False),
        ("pages", "known", False),
        ("refusals", "known", False),
        ("endless", "known", False),
    ],
)
def test_only_our_own_server_that_knows_the_token_lets_a_worker_in(
    server, settings, monkeypatch, path, token, lets_in
):
    monkeypatch.setattr(reception, "_SECONDS", 0.2 if path == "endless" else 10.0)
    settings.MCP_URL = f"http://127.0.0.1:{server.server_port}/{path}"
    if lets_in:
        reception.require(token)
    else:
        with pytest.raises(ServerMissing, match="does not answer a worker"):
            reception.require(token)
