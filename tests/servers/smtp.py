"""A recording SMTP server with switches for faults, over STARTTLS and over implicit TLS.

Implicit TLS is on 465 of a loopback address of this process alone, since accounts choose TLS by the
port; without the right to bind it, `smtps_port` is None.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from config.embedded_mail import make_certificate
from tests.servers.presence import may_bind, own_host

USER, PASSWORD = "sender", "an-smtp-password"


@dataclass
class Accepted:
    """One message the server said 250 to (or took before it went silent)."""

    sender: str
    recipients: list[str]
    content: bytes


@dataclass
class Faults:
    """What goes wrong. `after_data` is said instead of 250; the drops close the connection."""

    refuse_sender: str = ""
    refuse_recipients: dict[str, str] = field(default_factory=dict)
    after_data: str = ""
    drop_before_data: bool = False
    drop_after_data: bool = False
    delay_after_data: float = 0.0


class _Handler:
    def __init__(self, server: SmtpServer) -> None:
        self._server = server

    async def handle_MAIL(
        self, smtp: SMTP, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if self._server.faults.refuse_sender:
            return self._server.faults.refuse_sender
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(
        self, smtp: SMTP, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        refusal = self._server.faults.refuse_recipients.get(address)
        if refusal:
            return refusal
        if self._server.faults.drop_before_data:
            smtp.transport.abort()
            return "421 gone"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, smtp: SMTP, session: Any, envelope: Any) -> str:
        faults = self._server.faults
        self._server.data_seen += 1
        if not faults.after_data:
            self._server.accepted.append(
                Accepted(envelope.mail_from, list(envelope.rcpt_tos), bytes(envelope.content))
            )
        if faults.delay_after_data:
            await asyncio.sleep(faults.delay_after_data)
        if faults.drop_after_data:
            smtp.transport.abort()
        return faults.after_data or "250 accepted"


class SmtpServer:
    """Runs in a thread while its block is open. `accepted` counts what arrived."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="cs-smtp-", dir="/tmp"))
        self.host = own_host()
        self.smtp_port = 0
        self.smtps_port: int | None = None
        self.accepted: list[Accepted] = []
        self.data_seen = 0
        self.faults = Faults()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> SmtpServer:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10), "the SMTP server did not start"
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        servers = self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        for server in servers:
            server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _start(self) -> list[asyncio.AbstractServer]:
        certificate, key = make_certificate(self.directory, (self.host, "127.0.0.1"))
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        handler = _Handler(self)
        common: dict[str, Any] = {
            "authenticator": _authenticate,
            "auth_required": True,
            "hostname": "localhost",
            "loop": self._loop,
        }
        upgraded = await self._loop.create_server(
            lambda: SMTP(handler, tls_context=tls, require_starttls=True, **common), self.host, 0
        )
        self.smtp_port = upgraded.sockets[0].getsockname()[1]
        servers: list[asyncio.AbstractServer] = [upgraded]
        if may_bind(self.host, 465):
            servers.append(
                await self._loop.create_server(
                    lambda: SMTP(handler, auth_require_tls=False, **common),
                    self.host,
                    465,
                    ssl=tls,
                )
            )
            self.smtps_port = 465
        return servers


def _authenticate(smtp: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
    right = isinstance(given, LoginPassword) and (given.login, given.password) == (
        USER.encode(),
        PASSWORD.encode(),
    )
    return AuthResult(success=right, handled=False)
