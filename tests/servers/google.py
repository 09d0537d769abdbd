"""A synthetic Google on loopback: three hosts, plain HTTP, every request counted, faults by name.

What Google does and answers is `mail.gateways.google.memory`; this puts it behind real sockets and
spoils it as it is told:

    with GoogleServer() as server:
        person = server.google.add_person("agent@gmail.test")
        read = server.google.issue(person, "read")
        server.fault("token.scope-null", times=1, credential=read.name)
        server.google.count("userinfo")

A fault is `<endpoint>.<name>`: a name of `ANYWHERE` with any endpoint, or one that the endpoint
has of its own (`OF_THEIR_OWN`). Without `times` it stays. What lies about a filed message spoils
the mailbox, not the answer alone.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mail.gateways.google.http import Host, Request
from mail.gateways.google.memory import ENDPOINTS, Answered, Issued, MemoryGoogle
from tests.servers import google_faults
from tests.servers.google_faults import ANYWHERE, OF_THEIR_OWN, Seen

#: The most that an answer waits that is never to come, in seconds: longer than any test.
_FOR_EVER = 300.0


@dataclass
class Fault:
    """One fault that was set: how often it still happens (None: always), and to whom."""

    name: str
    times: int | None
    credential: str


@dataclass
class GoogleServer:
    """Google on three loopback ports; answers in threads while its block is open."""

    google: MemoryGoogle = field(default_factory=MemoryGoogle)
    #: How long `slow` answers take, in seconds.
    slow_seconds: float = 15.0
    faults: list[Fault] = field(default_factory=list)
    #: Called by endpoint before Google acts on a request, and after it did, before the answer
    #: leaves; each once.
    before: dict[str, Callable[[], object]] = field(default_factory=dict)
    after: dict[str, Callable[[], object]] = field(default_factory=dict)

    def __enter__(self) -> GoogleServer:
        self.closing = threading.Event()
        self._hosts = {host: _Server(self, host) for host in Host}
        self._threads = [
            threading.Thread(target=one.accept_all, daemon=True) for one in self._hosts.values()
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closing.set()
        for one in self._hosts.values():
            one.end()
        for thread in self._threads:
            thread.join(10)

    @property
    def origins(self) -> Mapping[Host, str]:
        """Where the three hosts are, for `HttpWire(origins)`."""
        return {
            host: f"http://127.0.0.1:{one.server_address[1]}" for host, one in self._hosts.items()
        }

    def fault(self, name: str, times: int | None = None, credential: str = "") -> None:
        """From now on, or so many times, this goes wrong. KeyError for a name that is none."""
        endpoint, _, kind = name.partition(".")
        if endpoint not in ENDPOINTS or kind not in {*ANYWHERE, *OF_THEIR_OWN.get(endpoint, {})}:
            raise KeyError(name)
        self.faults.append(Fault(name, times, credential))

    def heal(self) -> None:
        """No more faults."""
        self.faults.clear()

    def happening(self, endpoint: str, credential: str) -> str:
        """The fault of this request, used up once; empty where all is well."""
        with self.google.lock:
            for fault in self.faults:
                meant = fault.name.startswith(f"{endpoint}.")
                if meant and fault.credential in ("", credential) and fault.times != 0:
                    if fault.times is not None:
                        fault.times -= 1
                    return fault.name.partition(".")[2]
        return ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, google: GoogleServer, host: Host) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.google_server = google
        self.host = host

    def accept_all(self) -> None:
        """Answer until `end`, in a thread for each. Ends at once: hundreds of tests wait for it."""
        while True:
            try:
                self.process_request(*self.get_request())
            except OSError:
                if self.google_server.closing.is_set():
                    return

    def end(self) -> None:
        """Wake the thread that accepts, and close."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *arguments: Any) -> None:
        """No lines between the tests' dots."""

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        self.close_connection = True
        outer = self.server.google_server
        request = self._request()
        contacted = outer.google.take(request)
        fault = outer.happening(contacted.endpoint, contacted.credential)
        outer.before.pop(contacted.endpoint, _nothing)()
        if fault in google_faults.BEFORE:
            self._spoil(fault, Answered(0, {}))
            return
        issued = outer.google.issuer_of(request)
        answered = self._answered(contacted.endpoint, fault, request, issued)
        outer.after.pop(contacted.endpoint, _nothing)()
        if fault in ANYWHERE:
            self._spoil(fault, answered)
        else:
            self._send(answered.status, json.dumps(answered.document).encode())

    def _answered(
        self, endpoint: str, fault: str, request: Request, issued: Issued | None
    ) -> Answered:
        """Google's answer, with the endpoint's own fault in it where there is one."""
        google = self.server.google_server.google
        own = OF_THEIR_OWN.get(endpoint, {}).get(fault)
        if own is None:
            return google.answer(request)
        with google.lock:
            seen = Seen(google, request, issued, google.answer)
            return own(seen)

    def _spoil(self, fault: str, answered: Answered) -> None:
        """What may go wrong anywhere."""
        body = json.dumps(answered.document).encode()
        if fault.startswith("status-"):
            self._send(int(fault.split("-")[1]), google_faults.error_body(fault))
        elif fault == "rate-limit":
            self._send(403, google_faults.error_body(fault))
        elif fault == "redirect":
            self._send(307, b"{}", location=f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        elif fault.startswith("reset"):
            self._reset()
        elif fault == "hang":
            self.server.google_server.closing.wait(_FOR_EVER)
        elif fault == "slow":
            self.server.google_server.closing.wait(self.server.google_server.slow_seconds)
            self._send(answered.status, body)
        elif fault == "drip":
            self._drip(body)
        elif fault == "truncated":
            self._send(200, body[: len(body) // 2], length=len(body))
        elif fault == "endless":
            self._endless()
        elif fault == "no-length":
            self._send(200, body, length=None)
        else:
            kind, content, headers = google_faults.spoiled(fault, answered.document)
            self._send(200, content, content_type=kind, **headers)

    def _request(self) -> Request:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        return Request(self.command, self.server.host, self.path, token, body)

    def _send(
        self,
        status: int,
        content: bytes,
        *,
        content_type: str = "application/json; charset=UTF-8",
        length: int | None = -1,
        **headers: str,
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        if length is not None:
            self.send_header("content-length", str(len(content) if length < 0 else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def _drip(self, content: bytes) -> None:
        """A byte now and then: each comes in time, the whole never does."""
        self.send_response(200)
        self.send_header("content-type", "application/json; charset=UTF-8")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        for number in range(len(content)):
            self.wfile.write(content[number : number + 1])
            if self.server.google_server.closing.wait(0.05):
                return

    def _endless(self) -> None:
        """Chunks of white space in front of an object that never begins."""
        self.send_response(200)
        self.send_header("content-type", "application/json; charset=UTF-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while not self.server.google_server.closing.is_set():
            self.wfile.write(b"4000\r\n" + b" " * 0x4000 + b"\r\n")

    def _reset(self) -> None:
        """RST instead of an answer."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def _nothing() -> None:
    """What happens around most requests."""
