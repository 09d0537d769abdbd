"""The real Messages API, asked with the real key: at CLAUDE_BASE_URL, and nowhere else.

A connection is used again for a later request of the run. What was asked on one is never asked
again on another: nobody could know whether it was answered, and paid for.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial

import h11

from guards.exceptions import SecretUnavailable
from pipelines.runners.claude.broker import address
from pipelines.runners.claude.broker.requests import Request

_CHUNK = 64 * 1024
_MOST_HEAD = 64 * 1024


#: What stands where an answer has the key.
_HIDDEN = b"[the key]"


class Unreachable(OSError):
    """The API was not asked at all."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: until a connection stands, between two pieces of an answer, and between two uses.

    A model may think for minutes before the first piece of an answer in one piece.
    """

    connect: float = 10.0
    silence: float = 620.0
    idle: float = 30.0


@dataclass
class Answer:
    """One answer without the key. `piece` brings its body's next bytes, b"" at the end."""

    status: int
    fields: list[tuple[bytes, bytes]]
    piece: Callable[[], Awaitable[bytes]]

    def said(self, name: bytes) -> str:
        """What a field says, or several of that name; "" where it does not stand."""
        return ", ".join(value.decode("latin-1") for known, value in self.fields if known == name)


class Veil:
    """Takes a text in pieces and gives it back without the key, wherever that is cut.

    Nobody asks an API to repeat it; some that stand before one do, when they refuse it.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._held = b""

    def take(self, piece: bytes) -> bytes:
        """What can be given of it: not an end that the key may begin with. b"" gives all."""
        said = (self._held + piece).replace(self._key, _HIDDEN)
        most = min(len(self._key) - 1, len(said)) if piece else 0
        kept = next((n for n in range(most, 0, -1) if self._key.startswith(said[-n:])), 0)
        given, self._held = said[: len(said) - kept], said[len(said) - kept :]
        return given


@dataclass
class _Line:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection = field(
        default_factory=lambda: h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
    )
    used_at: float = 0.0

    async def send(self, *events: h11.Event) -> None:
        for event in events:
            self.writer.write(self.http.send(event) or b"")
        await self.writer.drain()

    async def next_event(self, silence: float) -> object:
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            async with asyncio.timeout(silence):
                self.http.receive_data(await self.reader.read(_CHUNK))


class Upstream:
    """The API of one run. InvalidInput where CLAUDE_BASE_URL is no address of one.

    SecretUnavailable for a key that is none.
    """

    def __init__(self, key: str, patience: Patience | None = None) -> None:
        self._at = address.of_api()
        if not key.isascii() or not key.isprintable() or not key.strip():
            raise SecretUnavailable(
                "CLAUDE_API_KEY_REF does not hold a key", field="CLAUDE_API_KEY_REF"
            )
        self._key = key.encode()
        self._patience = patience or Patience()
        self._idle: list[_Line] = []

    @asynccontextmanager
    async def asked(self, request: Request) -> AsyncIterator[Answer]:
        """Its answer. Unreachable where nothing was asked.

        OSError, TimeoutError or RemoteProtocolError where none comes.
        """
        line = self._idle_line() or await self._connected()
        try:
            await line.send(self._head(request), h11.Data(data=request.body), h11.EndOfMessage())
            head = await self._answered(line)
            fields = [(name, self._hidden(value)) for name, value in head.headers]
            yield Answer(head.status_code, fields, partial(self._piece, line, Veil(self._key)))
        except BaseException:
            line.writer.transport.abort()
            raise
        self._keep(line)

    async def close(self) -> None:
        """End what is still connected."""
        for line in self._idle:
            line.writer.transport.abort()
        self._idle.clear()

    def hide(self, text: str) -> str:
        """What went wrong, as anybody may read it."""
        return text.replace(self._key.decode(), _HIDDEN.decode())

    def _hidden(self, value: bytes) -> bytes:
        return value.replace(self._key, _HIDDEN)

    def _head(self, request: Request) -> h11.Request:
        ours = [
            (b"host", self._at.named.encode()),
            (b"x-api-key", self._key),
            (b"content-length", str(len(request.body)).encode()),
            *request.fields,
        ]
        return h11.Request(method="POST", target=f"{self._at.path}{request.target}", headers=ours)

    async def _answered(self, line: _Line) -> h11.Response:
        while True:
            event = await line.next_event(self._patience.silence)
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the Messages API ended the connection")

    async def _piece(self, line: _Line, veil: Veil) -> bytes:
        while line.http.their_state is h11.SEND_BODY:
            event = await line.next_event(self._patience.silence)
            if isinstance(event, h11.EndOfMessage):
                return veil.take(b"")
            if not isinstance(event, h11.Data):
                raise h11.RemoteProtocolError("the answer is not whole")
            if given := veil.take(bytes(event.data)):
                return given
        return b""

    async def _connected(self) -> _Line:
        try:
            async with asyncio.timeout(self._patience.connect):
                secure = _verified() if self._at.tls else None
                opened = await asyncio.open_connection(self._at.host, self._at.port, ssl=secure)
        except (OSError, TimeoutError) as error:
            said = str(error) or "no connection in time"
            raise Unreachable(f"{self._at.host} cannot be reached: {said}") from error
        return _Line(*opened)

    def _idle_line(self) -> _Line | None:
        while self._idle:
            line = self._idle.pop()
            is_fresh = time.monotonic() - line.used_at < self._patience.idle
            if is_fresh and not line.reader.at_eof() and not line.writer.is_closing():
                return line
            line.writer.transport.abort()
        return None

    def _keep(self, line: _Line) -> None:
        http = line.http
        is_done = http.our_state is h11.DONE and http.their_state is h11.DONE
        if is_done and not http.trailing_data[0]:  # what comes unasked is no answer to the next
            line.http.start_next_cycle()
            line.used_at = time.monotonic()
            self._idle.append(line)
        else:
            line.writer.transport.abort()


@cache
def _verified() -> ssl.SSLContext:
    """The system's certificates: they take a while to read, so it is done once a process."""
    return ssl.create_default_context()
