"""One connection from inside: one request in the plainest form, and its answer.

h11 reads and writes HTTP. What it would repair, or read in one of two ways, is refused before.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus

import h11

from pipelines.runners.claude.broker import requests
from pipelines.runners.claude.broker.requests import Refused, Request

#: Bytes of a request's body at most. Its head has 64 KiB, as streams of asyncio have.
MOST_BODY = 16 * 1024 * 1024

#: Fields that would make of one request another thing, or more than one.
_NEVER = frozenset({b"transfer-encoding", b"upgrade", b"expect", b"trailer", b"te"})
#: Fields that stand there once, or not at all.
_ONCE = frozenset({b"content-length", b"host", b"authorization", b"x-api-key", b"content-type"})
_BEARER = b"Bearer "

_CHUNK = 64 * 1024
#: Seconds in which whoever was refused may still send what nobody reads.
_LINGER = 1.0


class Gone(Exception):
    """Whoever asked has closed the connection."""


class Visitor:
    """Whoever has connected."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)
        self._method = b""
        self.is_answered = False

    async def head(self, word: str) -> h11.Request:
        """What is asked for, by somebody who has the word; Refused otherwise."""
        try:
            came = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise Refused(431, "invalid_request_error", "the head is too long") from error
        except asyncio.IncompleteReadError as error:
            raise Refused(400, "invalid_request_error", "the head has no end") from error
        _require_plain(came)
        try:
            self._http.receive_data(came)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise Refused(400, "invalid_request_error", str(error)) from error
        if not isinstance(event, h11.Request):
            raise Refused(400, "invalid_request_error", "the head is no request")
        self._method = event.method
        _require_word(event, word)
        requests.check_target(event.method.decode(), event.target.decode())
        if _length(event) > MOST_BODY:
            raise Refused(413, "request_too_large", f"a body has {MOST_BODY} bytes at most")
        return event

    async def request(self, head: h11.Request) -> Request:
        """All of it, judged."""
        try:
            content = await self._reader.readexactly(_length(head))
        except asyncio.IncompleteReadError as error:
            raise Refused(400, "invalid_request_error", "the body is not whole") from error
        self._http.receive_data(content)
        return requests.read(head.target.decode(), list(head.headers), content)

    async def begin(self, status: int, fields: Sequence[tuple[bytes, bytes]]) -> None:
        """The head of the answer, the only one of this connection."""
        self.is_answered = True
        head = h11.Response(
            status_code=status,
            headers=[*fields, (b"connection", b"close")],
            reason=_reason(status),
        )
        await self._send(head)

    async def pass_on(self, chunk: bytes) -> None:
        """The next bytes of the answer, no faster than they are taken."""
        await self._send(h11.Data(data=chunk))

    async def end(self) -> None:
        """The end of the answer."""
        await self._send(h11.EndOfMessage())

    async def refuse(self, refused: Refused) -> None:
        """The whole answer to what goes no further; the client is not to ask again."""
        content = refused.content
        fields = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (
                b"x-should-retry",
                b"false" if refused.status < HTTPStatus.INTERNAL_SERVER_ERROR else b"true",
            ),
        ]
        with suppress(Gone, OSError):
            await self.begin(refused.status, fields)
            if self._method != b"HEAD":
                await self.pass_on(content)
            await self.end()
            self._writer.write_eof()
        with suppress(TimeoutError):  # an end before it has sent all would take its answer away
            await asyncio.wait_for(self.gone(), _LINGER)

    def break_off(self) -> None:
        """End an answer that did not come to its end, so that it does not look as if."""
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Until it has closed the connection; what it still sends goes nowhere."""
        with suppress(OSError):
            while await self._reader.read(_CHUNK):
                pass

    async def _send(self, event: h11.Event) -> None:
        sent = self._http.send(event)
        try:
            self._writer.write(sent or b"")
            await self._writer.drain()
        except OSError as error:
            raise Gone from error


def _require_plain(head: bytes) -> None:
    """Refused for a head that two readers could read differently."""
    _, *lines = head[:-4].split(b"\r\n")
    names = Counter(line.partition(b":")[0].strip().lower() for line in lines)
    if (
        any(line[:1] in (b" ", b"\t") for line in lines)
        or any(end in head.replace(b"\r\n", b"") for end in (b"\r", b"\n"))
        or any(name in names for name in _NEVER)
        or any(names[name] > 1 for name in _ONCE)
    ):
        raise Refused(400, "invalid_request_error", "the head is not in the plainest form")


def _require_word(head: h11.Request, word: str) -> None:
    """Refused for anybody who does not bring this run's word, once."""
    fields = dict(head.headers)
    given = [fields[name] for name in (b"x-api-key", b"authorization") if name in fields]
    said = given[0].removeprefix(_BEARER) if len(given) == 1 else b""
    if not hmac.compare_digest(said, word.encode()):
        raise Refused(401, "authentication_error", "not-this-mission: that is not its word")


def _length(head: h11.Request) -> int:
    return int(dict(head.headers).get(b"content-length", b"0"))


def _reason(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
