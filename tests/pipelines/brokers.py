"""A broker on loopback for tests, a Messages API of raw bytes behind it, and raw bytes to ask."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pipelines.runners.claude import egress
from pipelines.runners.claude.broker import Bounds, Meter
from pipelines.runners.claude.broker.exchange import Broker
from pipelines.runners.claude.broker.prices import Prices
from pipelines.runners.claude.broker.upstream import Patience, Upstream

KEY, WORD = "sk-ant-the-real-key", "the-word-of-this-mission"

#: How one request is answered, on its connection.
Script = Callable[[socket.socket], object]


def answered(body: bytes, *fields: str, status: str = "200 OK") -> Script:
    """An answer in one piece."""
    kind = (
        []
        if any(one.lower().startswith("content-type") for one in fields)
        else ["Content-Type: application/json"]
    )
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *kind, *fields, "", ""]
    content = "\r\n".join(lines).encode() + body
    return lambda line: line.sendall(content)


def message(model: str = "a-model", **usage: int) -> bytes:
    """An answer that is a document."""
    return json.dumps({"type": "message", "model": model, "usage": usage}).encode()


def events(model: str = "a-model", output: int = 50, **usage: int) -> bytes:
    """An answer that is a stream, whole."""
    said = [
        {
            "type": "message_start",
            "message": {"model": model, "usage": {"output_tokens": 1, **usage}},
        },
        {"type": "content_block_delta", "delta": {"text": 'of "message_delta" and "usage"'}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": output}},
        {"type": "message_stop"},
    ]
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in said)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@dataclass
class Api:
    """The API behind the broker: `asked` are the requests as they came, head and body."""

    script: Script = field(default_factory=lambda: answered(message(input_tokens=1)))
    asked: list[tuple[bytes, bytes]] = field(default_factory=list)
    connections: int = 0
    secure: ssl.SSLContext | None = None

    def __enter__(self) -> Api:
        self._door = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._door.close()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._door.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._door.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with suppress(OSError), self._secured(line) as safe:
            self._answer(safe)

    def _secured(self, line: socket.socket) -> socket.socket:
        return self.secure.wrap_socket(line, server_side=True) if self.secure else line

    def _answer(self, line: socket.socket) -> None:
        with line.makefile("rb") as reader:
            while head := self._head(reader):
                length = _field(head, b"content-length")
                self.asked.append((head, reader.read(int(length or 0))))
                if self.script(line) == "close":
                    return

    def _head(self, reader: Any) -> bytes:
        head = b""
        while not head.endswith(b"\r\n\r\n") and (line := reader.readline()):
            head += line
        return head


def _field(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        if line.partition(b":")[0].lower() == name:
            return line.partition(b":")[2].strip()
    return b""


@dataclass
class Answer:
    """What came back."""

    status: int
    head: bytes
    body: bytes
    is_whole: bool = True

    @property
    def said(self) -> str:
        """The message of an error."""
        return str(json.loads(self.body)["error"]["message"])


@dataclass
class Desk:
    """A broker, and how to ask it."""

    url: str
    broker: Broker

    def connect(self) -> socket.socket:
        """A connection to it."""
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=20)

    def send(self, content: bytes) -> Answer:
        """Those bytes, and all that comes back."""
        with self.connect() as line:
            with suppress(OSError):
                line.sendall(content)
            return read(line)

    def ask(self, body: Any = None, **rest: Any) -> Answer:
        """A plain request."""
        return self.send(request(body, **rest))


def request(
    body: Any = None,
    *fields: str,
    first: str = "POST /v1/messages?beta=true HTTP/1.1",
    word: str = WORD,
    length: bool = True,
) -> bytes:
    """A request's bytes: the client's, until a test changes them."""
    content = body if isinstance(body, bytes) else json.dumps(body or {"model": "m"}).encode()
    lines = [
        *(first, "Host: inside:8080", "Content-Type: application/json"),
        *([f"X-Api-Key: {word}"] if word else []),
        *([f"Content-Length: {len(content)}"] if length else []),
        *fields,
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


def read(line: socket.socket) -> Answer:
    """One whole answer, or as much of it as came."""
    said, is_reset = b"", False
    try:
        while chunk := line.recv(65536):
            said += chunk
    except ConnectionError:
        is_reset = True
    head, _, body = said.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1]) if head.startswith(b"HTTP/1.1 ") else 0
    if b"chunked" not in head.lower():
        return Answer(status, head, body, not is_reset)
    pieces, is_whole = _pieces(body)
    return Answer(status, head, pieces, is_whole)


def _pieces(body: bytes) -> tuple[bytes, bool]:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        if int(size, 16) == 0:
            return whole, True
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return whole, False


def made(
    *,
    word: str = WORD,
    usd: float = 1.0,
    turns: int = 10,
    prices: Mapping[str, Any] | None = None,
    seconds: float = 20.0,
    clock: Callable[[], float] = time.monotonic,
    **patience: float,
) -> Broker:
    """A broker for CLAUDE_BASE_URL."""
    meter = Meter(Bounds(Decimal(str(usd)), turns), Prices(prices or {}), clock)
    return Broker(Upstream(KEY, Patience(**patience)), meter, word, seconds)


@contextmanager
def broker(**fields: Any) -> Iterator[Desk]:
    """One on loopback."""
    found = made(**fields)
    with egress.on_loopback(found) as url:
        yield Desk(url, found)
