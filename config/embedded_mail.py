"""A mail server of our own for demos and tests: IMAP by pymap, SMTP by aiosmtpd, in one process.

It listens on loopback only and keeps mail in memory, so each start gives every mailbox a new
UIDVALIDITY. IMAP speaks STARTTLS and implicit TLS, SMTP the same with AUTH; what SMTP accepts is
written to a journal first (JSON lines, synced) and delivered into the recipients' INBOX.
Import this module only where the `demo` requirements are installed.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import ssl
from argparse import ArgumentParser
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from email.parser import BytesHeaderParser
from email.policy import compat32
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from proxyprotocol.reader import ProxyProtocolReader
from pymap.backend.dict import DictBackend
from pymap.backend.dict import Identity as PymapIdentity
from pymap.backend.dict import mailbox as pymap_mailboxes
from pymap.backend.dict.mailbox import MailboxData
from pymap.concurrent import Event
from pymap.imap import IMAPServer, IMAPService
from pymap.parsing.message import AppendMessage
from pymap.parsing.specials import Flag
from pymap.selected import SelectedMailbox
from pymap.user import UserMetadata
from pysasl.hashing import BuiltinHash

#: Starts one server at the port it is given.
Start = Callable[..., Coroutine[Any, Any, asyncio.Server]]

LOOPBACK = "127.0.0.1"

#: pymap compares hashes. A dear one would protect nothing: the passwords lie in `mailboxes.json`.
_QUICK_HASH = BuiltinHash(rounds=1)

#: The largest message SMTP takes, in bytes.
MAX_BYTES = 30 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mailbox:
    """One user of the server. A bridge mailbox takes no SMTP: IMAP APPEND fills it."""

    address: str
    password: str
    takes_smtp: bool = True


@dataclass(frozen=True, slots=True)
class Ports:
    """The four ports. As a wish: 0, or one that is taken, is answered by a free one."""

    imap: int = 0
    imaps: int = 0
    smtp: int = 0
    smtps: int = 0


def make_certificate(directory: Path, addresses: Sequence[str] = (LOOPBACK,)) -> tuple[Path, Path]:
    """A self-made certificate for loopback addresses and its key (0600), once per directory."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    if certificate.exists() and key.exists():
        return certificate, key
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.DNSName("localhost"),
                    *(x509.IPAddress(IPv4Address(address)) for address in addresses),
                ]
            ),
            critical=False,
        )
        .sign(private, hashes.SHA256())
    )
    key.touch(mode=0o600)
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    return certificate, key


class _Mailbox(MailboxData):
    """pymap's mailbox in memory, with two things that clients expect."""

    @property
    def permanent_flags(self) -> frozenset[Flag]:
        """Clients may set keywords of their own."""
        known = (b"\\Seen", b"\\Answered", b"\\Flagged", b"\\Deleted", b"\\Draft", b"\\*")
        return frozenset(Flag(name) for name in known)

    async def update_selected(
        self, selected: SelectedMailbox, *, wait_on: Event | None = None
    ) -> SelectedMailbox:
        """IDLE tells at once what came between the last command and itself."""
        has_news = selected.mod_sequence != self._mod_sequences.highest
        return await super().update_selected(selected, wait_on=None if has_news else wait_on)


class Journal:
    """What SMTP accepted, one JSON object a line, synced before the client hears 250."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, envelope: Envelope) -> None:
        """Write one accepted message down: its envelope, Message-ID, SHA-256 and size."""
        content = _content(envelope)
        header = BytesHeaderParser(policy=compat32).parsebytes(content)
        line = {
            "at": datetime.now(UTC).isoformat(),
            "from": envelope.mail_from,
            "to": list(envelope.rcpt_tos),
            "message_id": str(header.get("Message-ID", "")).strip().strip("<>"),
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _content(envelope: Envelope) -> bytes:
    """The message as it came: aiosmtpd decodes nothing unless asked to."""
    content = envelope.content or b""
    return content.encode() if isinstance(content, str) else bytes(content)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The journal's complete lines; none where the file does not exist yet."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


class _Delivery:
    """aiosmtpd's handler: takes mail for our own mailboxes only."""

    def __init__(self, server: EmbeddedMail) -> None:
        self._server = server

    async def handle_RCPT(
        self, smtp: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if not self._server.takes_smtp(address):
            return "550 5.1.1 no such mailbox here"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, smtp: SMTP, session: Session, envelope: Envelope) -> str:
        self._server.journal.append(envelope)
        for address in envelope.rcpt_tos:
            await self._server.deliver(address, _content(envelope))
        return "250 2.0.0 accepted"


class EmbeddedMail:
    """The two servers over one set of mailboxes. Use it as an async context manager."""

    def __init__(
        self, *, directory: Path, mailboxes: Sequence[Mailbox], ports: Ports | None = None
    ) -> None:
        self._directory = directory
        self._mailboxes = {box.address.lower(): box for box in mailboxes}
        self._wanted = ports or Ports()
        self._servers: list[asyncio.Server] = []
        self.journal = Journal(directory / "accepted.jsonl")

    async def __aenter__(self) -> Ports:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        certificate, key = make_certificate(self._directory)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
        imap = await self._start_imap(certificate, key, tls)
        smtp = await self._start_smtp(tls)
        return Ports(*imap, *smtp)

    async def __aexit__(self, *exception: object) -> None:
        for server in self._servers:
            server.close()

    def takes_smtp(self, address: str) -> bool:
        """Whether SMTP delivers to this address."""
        box = self._mailboxes.get(address.lower())
        return box is not None and box.takes_smtp

    async def deliver(self, address: str, content: bytes) -> None:
        """Put a message into somebody's INBOX, unread."""
        message = AppendMessage(content, datetime.now(UTC), frozenset())
        async with self._identity(address).new_session() as session:
            await session.append_messages("INBOX", [message])

    def _identity(self, address: str) -> PymapIdentity:
        return PymapIdentity(address.lower(), self._backend.login, None, frozenset())

    async def _start_imap(
        self, certificate: Path, key: Path, tls: ssl.SSLContext
    ) -> tuple[int, int]:
        self._backend, settings = await DictBackend.init(_pymap_arguments(certificate, key))
        settings.apply_context()
        for box in self._mailboxes.values():
            digest = _QUICK_HASH.hash(box.password)
            name = box.address.lower()
            self._backend.login.users_dict[name] = UserMetadata(settings, name, password=digest)
            async with self._identity(name).new_session() as session:
                await session.create_mailbox("Sent")
        greet = ProxyProtocolReader(settings.proxy_protocol).get_callback(
            IMAPServer(self._backend.login, settings)
        )
        return (
            await self._listen(partial(asyncio.start_server, greet, LOOPBACK), self._wanted.imap),
            await self._listen(
                partial(asyncio.start_server, greet, LOOPBACK, ssl=tls), self._wanted.imaps
            ),
        )

    async def _listen(self, start: Start, port: int) -> int:
        """Start one server there, or on a free port where somebody is already."""
        try:
            server = await start(port=port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            server = await start(port=0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _start_smtp(self, tls: ssl.SSLContext) -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        delivery = _Delivery(self)
        common: dict[str, Any] = {
            "authenticator": self._authenticate,
            "auth_required": True,
            "data_size_limit": MAX_BYTES,
            "enable_SMTPUTF8": True,
            "hostname": "localhost",
        }

        def upgraded() -> SMTP:
            return SMTP(delivery, tls_context=tls, require_starttls=True, **common)

        def implicit() -> SMTP:
            # The connection is TLS already, which aiosmtpd cannot see.
            return SMTP(delivery, auth_require_tls=False, **common)

        return (
            await self._listen(partial(loop.create_server, upgraded, LOOPBACK), self._wanted.smtp),
            await self._listen(
                partial(loop.create_server, implicit, LOOPBACK, ssl=tls), self._wanted.smtps
            ),
        )

    def _authenticate(
        self, smtp: SMTP, session: Session, envelope: Envelope, mechanism: str, given: object
    ) -> AuthResult:
        if not isinstance(given, LoginPassword):
            return AuthResult(success=False, handled=False)
        box = self._mailboxes.get(given.login.decode().lower())
        return AuthResult(
            success=box is not None and box.password == given.password.decode(), handled=False
        )


def _pymap_arguments(certificate: Path, key: Path) -> Any:
    """pymap reads its settings from a command line only, and makes its mailboxes by name."""
    pymap_mailboxes.MailboxData = _Mailbox  # type: ignore[misc]
    parser = ArgumentParser()
    IMAPService.add_arguments(parser)
    DictBackend.add_subparser("dict", parser.add_subparsers(dest="backend"))
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("--passlib-cfg")
    return parser.parse_args(
        ["--host", LOOPBACK, "--cert", str(certificate), "--key", str(key), "dict"]
    )


def read_mailboxes(directory: Path) -> list[Mailbox]:
    """The mailboxes that `write_mailboxes` wrote into this directory."""
    rows = json.loads((directory / "mailboxes.json").read_text(encoding="utf-8"))
    return [Mailbox(**row) for row in rows]


def write_mailboxes(directory: Path, mailboxes: Sequence[Mailbox]) -> None:
    """Write the mailboxes with their passwords for a server process to read (0600)."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / "mailboxes.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps([asdict(box) for box in mailboxes], indent=1), encoding="utf-8")


def read_ports(directory: Path) -> Ports | None:
    """The ports the server last listened on; None before its first start."""
    path = directory / "ports.json"
    return Ports(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def write_ports(directory: Path, ports: Ports) -> None:
    """Say where the server listens, in one step: a reader sees all of it or nothing."""
    draft = directory / "ports.json.new"
    draft.write_text(json.dumps(asdict(ports)), encoding="utf-8")
    draft.replace(directory / "ports.json")
