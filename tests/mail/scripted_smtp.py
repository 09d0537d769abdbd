"""An SMTP server that says exactly what a test tells it, in plain text on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading

from mail.gateways.base import Endpoint


class ScriptedSmtp:
    """Answers by verb. An answer of None closes the connection; `dot` answers the final dot.

    `cut_after` closes while the data is still coming, after so many bytes of it. What arrived as
    data stands in `data`, `dots` counts final dots, `sessions` connections.
    """

    def __init__(self, **answers: bytes | None) -> None:
        self.answers: dict[str, bytes | None] = {
            "greeting": b"220 ready\r\n",
            "ehlo": b"250-here\r\n250-8BITMIME\r\n250 SIZE 1000000\r\n",
            "mail": b"250 ok\r\n",
            "rcpt": b"250 ok\r\n",
            "data": b"354 go on\r\n",
            "dot": b"250 taken\r\n",
            "quit": b"221 bye\r\n",
            "rset": b"250 ok\r\n",
        } | answers
        self.by_recipient: dict[str, bytes] = {}
        self.cut_after: int | None = None
        self.data = b""
        self.dots = 0
        self.sessions = 0
        self.commands: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.port, allow_plaintext=True)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.sessions += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            if not self._say(connection, "greeting"):
                return
            for line in lines:
                self.commands.append(line.rstrip(b"\r\n"))
                verb = line[:4].strip().lower().decode("latin-1")
                if verb == "rcpt":
                    address = line.split(b"<", 1)[1].split(b">", 1)[0].decode()
                    if address in self.by_recipient:
                        connection.sendall(self.by_recipient[address])
                        continue
                if not self._say(connection, verb):
                    return
                if (
                    verb == "data"
                    and (self.answers["data"] or b"").startswith(b"354")
                    and not self._take(connection, lines)
                ):
                    return

    def _take(self, connection: socket.socket, lines) -> bool:
        for line in lines:
            if line == b".\r\n":
                self.dots += 1
                return self._say(connection, "dot")
            if line.upper() == b"QUIT\r\n":  # no line of a test's message: the client gave up
                return False
            self.data += line
            if self.cut_after is not None and len(self.data) >= self.cut_after:
                connection.shutdown(socket.SHUT_RDWR)
                return False
        return False

    def _say(self, connection: socket.socket, what: str) -> bool:
        answer = self.answers.get(what, b"500 what\r\n")
        if answer is None:
            return False
        connection.sendall(answer)
        return True
