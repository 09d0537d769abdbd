"""An IMAP server that says exactly what a test tells it, in plain text on loopback."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable

from mail.gateways.base import Endpoint

Answer = Callable[[bytes, bytes], bytes | None]


class ScriptedImap:
    """Answers each command by the first handler whose pattern matches.

    A handler gets (tag, command) and returns the bytes to send, complete with the tagged line; None
    closes the connection after what it may have sent itself through `self.connection`.
    """

    def __init__(self, greeting: bytes = b"* OK ready\r\n") -> None:
        self.greeting = greeting
        self.handlers: list[tuple[bytes, Answer]] = []
        self.commands: list[bytes] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def on(self, pattern: bytes, answer: bytes | Answer) -> None:
        """Say this to commands that match; `%TAG%` stands for the tag."""
        if callable(answer):
            self.handlers.insert(0, (pattern, answer))
        else:
            text = answer
            self.handlers.insert(0, (pattern, lambda tag, command: text.replace(b"%TAG%", tag)))

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.port, "user", "secret", allow_plaintext=True)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            connection.sendall(self.greeting)
            for line in lines:
                tag, _, command = line.rstrip(b"\r\n").partition(b" ")
                if tag == b"DONE":
                    tag, command = self._idle_tag, b"DONE"
                self.commands.append(command)
                if command == b"IDLE":
                    self._idle_tag = tag
                answer = self._answer(tag, command)
                if answer is None:
                    return
                connection.sendall(answer)

    def _answer(self, tag: bytes, command: bytes) -> bytes | None:
        for pattern, answer in self.handlers:
            if re.match(pattern, command, re.IGNORECASE):
                return answer(tag, command)
        return _usual(tag, command)


def _usual(tag: bytes, command: bytes) -> bytes | None:
    verb = command.split(b" ", 1)[0].upper()
    untagged = {
        b"CAPABILITY": b"* CAPABILITY IMAP4rev1 IDLE UIDPLUS\r\n",
        b"EXAMINE": (
            b"* 3 EXISTS\r\n* OK [UIDVALIDITY 77] ok\r\n* OK [UIDNEXT 4] ok\r\n* FLAGS (\\Seen)\r\n"
        ),
        b"LOGOUT": b"* BYE bye\r\n",
    }.get(verb, b"")
    if verb == b"IDLE":
        return b"+ idling\r\n"
    return untagged + tag + b" OK done\r\n"


def literal(number: int, uid: int, raw: bytes, extra: bytes = b"") -> bytes:
    """A FETCH response with a whole message."""
    return (
        (
            b'* %d FETCH (UID %d FLAGS () INTERNALDATE "30-Nov-2026 10:00:00 +0100" '
            b"RFC822.SIZE %d BODY[] {%d}\r\n" % (number, uid, len(raw), len(raw))
        )
        + raw
        + extra
        + b")\r\n"
    )


def eventually(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait until something holds; fails loudly where it never does."""
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "it never came to hold"
        time.sleep(0.01)
