"""A door that leads to one path of a plain HTTP server: to our MCP server, and not to its pages.

One connection carries one request: a head in the plainest form, a body of the length that it says,
and then the answer until its end. What is not exactly that is answered here and goes nowhere, so
there is nothing that we and the server could read differently.
"""

from __future__ import annotations

import asyncio
import re

#: Bytes of a request's body at most: a mission's result with its output, as JSON.
MOST_BYTES = 8 * 1024 * 1024

_CHUNK = 64 * 1024
_REQUEST = re.compile(rb"(?:POST|GET|DELETE) (/[!-~]*) HTTP/1\.1")
_FIELD = re.compile(rb"([A-Za-z0-9-]+):[ \t]*([ -~\x80-\xff\t]*)")
_REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

#: Fields that would make of one request another thing, or more than one.
_NEVER = frozenset({b"transfer-encoding", b"upgrade", b"expect", b"trailer"})


class NotForThisDoor(Exception):
    """The request is none that this door lets through."""


async def read_request(reader: asyncio.StreamReader, path: str) -> bytes:
    """One whole request for exactly that path, to be the only one; NotForThisDoor otherwise."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise NotForThisDoor from error
    first, *lines = head[:-4].split(b"\r\n")
    asked = _REQUEST.fullmatch(first)
    if asked is None or asked.group(1) != path.encode():
        raise NotForThisDoor
    fields = [_field(line) for line in lines]
    length = _length([value for name, value in fields if name == b"content-length"])
    kept = [line for line, field in zip(lines, fields, strict=True) if field[0] != b"connection"]
    try:
        body = await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        raise NotForThisDoor from error
    return b"\r\n".join([first, *kept, b"Connection: close", b"", body])


async def exchange(
    request: bytes,
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    writer: asyncio.StreamWriter,
) -> None:
    """Put it to the server, and pass its answer on until that ends."""
    reader, sink = far
    sink.write(request)
    await sink.drain()
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()


async def refuse(writer: asyncio.StreamWriter) -> None:
    """Say so, in the client's own language."""
    writer.write(_REFUSED)
    await writer.drain()
    writer.write_eof()


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if found is None or found.group(1).lower() in _NEVER:
        raise NotForThisDoor
    return found.group(1).lower(), found.group(2).strip()


def _length(said: list[bytes]) -> int:
    if not said:
        return 0
    if len(said) > 1 or not said[0].isdigit() or len(said[0]) > 8 or int(said[0]) > MOST_BYTES:
        raise NotForThisDoor
    return int(said[0])
