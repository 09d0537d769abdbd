"""The wire to Google: one request on one connection, within one wall deadline, or a typed error.

The standard library, because none of the clients at hand bounds the whole of a request: name
server, connection, TLS, and an answer that drips. Hosts are constants. There is no redirect, no
retry, no proxy, no cookie, no second request on a connection, and no key log, whatever the
environment says; the certificates that count are the system's (OpenSSL's). Neither headers nor
bodies are logged or put into an error.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import queue
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from mail.gateways.base import LOOPBACK_HOSTS
from mail.gateways.google.base import (
    AnswerTooLarge,
    BadAnswer,
    ConnectionBroken,
    NotReached,
    TimedOut,
    UntrustedServer,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: What status line and headers may weigh beside the body.
_HEAD_BYTES: Final = 64 * 1024


class Host(Enum):
    """Google's hosts that are spoken to. There are no others."""

    OAUTH = "https://oauth2.googleapis.com"
    OPENID = "https://openidconnect.googleapis.com"
    GMAIL = "https://gmail.googleapis.com"


@dataclass(frozen=True, slots=True)
class Request:
    """One request: `target` is path and query, `token` goes into Authorization where it is set."""

    method: str
    host: Host
    target: str
    token: str = ""
    body: bytes = b""
    content_type: str = ""

    def __repr__(self) -> str:
        return f"Request({self.method} {self.host.name})"


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Response({self.status})"


class Wire(Protocol):
    """What carries one request to Google and one whole answer back."""

    def exchange(self, request: Request, *, seconds: float, max_bytes: int) -> Response:
        """Within so many seconds of wall time and so many bytes of body; GoogleError otherwise."""
        ...


class HttpWire:
    """The wire to the real hosts. Tests give other `origins`; plain HTTP is for loopback alone."""

    def __init__(self, origins: Mapping[Host, str] | None = None) -> None:
        self._origins = {
            host: _Origin.parse((origins or {}).get(host, host.value)) for host in Host
        }

    def exchange(self, request: Request, *, seconds: float, max_bytes: int) -> Response:
        """Connect, ask, read, close. Whatever happens, the connection is closed when this ends."""
        origin = self._origins[request.host]
        deadline = _Deadline(time.monotonic() + seconds)
        connection = _connect(origin, deadline)
        try:
            with connection:
                _write(connection, _head(request, origin) + request.body, deadline)
                return _read(connection, request.method, deadline, max_bytes)
        except TimeoutError:
            raise TimedOut from None
        except (OSError, http.client.HTTPException):
            # The error's own text may quote the answer: it is not passed on.
            raise ConnectionBroken from None


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a host is."""

    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, url: str) -> _Origin:
        """From `https://host[:port]`; plain HTTP for a literal loopback host and no other."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        tls = parts.scheme == "https"
        if not host or not (tls or (parts.scheme == "http" and host in LOOPBACK_HOSTS)):
            raise ValueError(f"{url!r} is no origin: it must be https, or http on this machine")
        return cls(host, parts.port or (443 if tls else 80), tls)

    @property
    def authority(self) -> str:
        """For the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class _Deadline:
    """A moment of the monotonic clock."""

    at: float

    def left(self) -> float:
        """Seconds; TimeoutError when there are none."""
        seconds = self.at - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


@cache
def _tls() -> ssl.SSLContext:
    """Certificates and names are checked. Built by hand: the default one writes key logs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _connect(origin: _Origin, deadline: _Deadline) -> socket.socket:
    """A connection over which nothing of the request has gone yet."""
    try:
        connection = _dial(origin, deadline)
        return _secured(connection, origin, deadline) if origin.tls else connection
    except TimeoutError:
        raise TimedOut(begun=False) from None
    except ssl.SSLCertVerificationError as error:
        raise UntrustedServer(error.verify_message, begun=False) from None
    except OSError as error:
        raise NotReached(f"{origin.host}: {error.strerror or 'no answer'}", begun=False) from None


def _dial(origin: _Origin, deadline: _Deadline) -> socket.socket:
    """Try each address; one that swallows packets leaves time for the next."""
    addresses = _addresses(origin, deadline)
    failure: OSError = OSError("no address")
    for tried, (family, address) in enumerate(addresses):
        try:
            return _dial_one(family, address, deadline.left() / (len(addresses) - tried))
        except OSError as error:
            failure = error
    raise failure


def _dial_one(family: int, address: tuple[object, ...], seconds: float) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def _addresses(origin: _Origin, deadline: _Deadline) -> list[tuple[int, tuple[object, ...]]]:
    """What the name server says. It has no time limit of its own, so a thread waits for it."""
    with suppress(ValueError):
        address = ipaddress.ip_address(origin.host)
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        return [(family, (origin.host, origin.port))]
    answers: queue.SimpleQueue[list[tuple[int, tuple[object, ...]]] | OSError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
            answers.put([(int(one[0]), one[4]) for one in found])
        except OSError as error:
            answers.put(error)

    threading.Thread(target=look_up, name="google-name", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left())
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def _secured(connection: socket.socket, origin: _Origin, deadline: _Deadline) -> socket.socket:
    try:
        connection.settimeout(deadline.left())
        return _tls().wrap_socket(connection, server_hostname=origin.host)
    except BaseException:
        connection.close()
        raise


def _head(request: Request, origin: _Origin) -> bytes:
    lines = [
        f"{request.method} {request.target} HTTP/1.1",
        f"Host: {origin.authority}",
        "User-Agent: countersign",
        "Accept: application/json",
        "Accept-Encoding: identity",
        "Connection: close",
    ]
    if request.token:
        lines.append(f"Authorization: Bearer {request.token}")
    if request.body:
        lines.append(f"Content-Type: {request.content_type}")
        lines.append(f"Content-Length: {len(request.body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _write(connection: socket.socket, content: bytes, deadline: _Deadline) -> None:
    rest = memoryview(content)
    while rest:
        connection.settimeout(deadline.left())
        rest = rest[connection.send(rest) :]


def _read(connection: socket.socket, method: str, deadline: _Deadline, max_bytes: int) -> Response:
    """One whole answer: its end has to be declared, and it has to get there."""
    source = _Source(connection, deadline, max_bytes + _HEAD_BYTES)
    answer = http.client.HTTPResponse(source, method=method)  # type: ignore[arg-type]
    answer.begin()
    if answer.length is None and not answer.chunked:
        raise BadAnswer("the answer does not say where it ends", field="content-length")
    body = b"" if (answer.length or 0) > max_bytes else answer.read(max_bytes + 1)
    if len(body) > max_bytes or (answer.length or 0) > max_bytes:
        raise AnswerTooLarge(f"the answer is larger than {max_bytes} bytes")
    if answer.length:
        raise ConnectionBroken
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return Response(answer.status, headers, body)


class _Source(io.RawIOBase):
    """The connection's bytes, each read within what is left of the time and of the size."""

    def __init__(self, connection: socket.socket, deadline: _Deadline, max_bytes: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._left = max_bytes

    def makefile(self, mode: str) -> io.BufferedReader:
        """What http.client asks a socket for."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """At least one byte, or 0 at the end."""
        self._connection.settimeout(self._deadline.left())
        count = self._connection.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise AnswerTooLarge("the answer is larger than what may be read of it")
        return count
