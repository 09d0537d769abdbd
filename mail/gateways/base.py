"""The contracts of the mail gateways: a mailbox that is read, and a submission server that sends.

Both are opened for one account's `Endpoint`, used, and closed. Errors of the network or the server
are translated at this border into `mail.exceptions.TransportError` and its kinds; a submission
reports what the server did instead of raising.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from mail.types import FetchedMessage, MailboxState

#: No wait on a server is longer than this many seconds (imap-09).
TIMEOUT = 20.0

#: Seconds that one submission may take as a whole.
SESSION_SECONDS = 110.0

#: Hosts that are this machine by their very spelling, never by a name server.
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is and who we are there. `password` is the plain secret: keep it short-lived.

    TLS follows the port (DES-023). The certificate goes unchecked on a literal loopback host, or
    where `skip_verify` says so. `allow_plaintext` permits a missing STARTTLS on a literal loopback
    host and nowhere else.
    """

    host: str
    port: int
    username: str = ""
    password: str = field(default="", repr=False)
    skip_verify: bool = False
    allow_plaintext: bool = False

    @property
    def is_loopback(self) -> bool:
        """Whether the host is literally this machine."""
        return self.host.lower() in LOOPBACK_HOSTS

    @property
    def checks_certificate(self) -> bool:
        """Whether the server must prove its name."""
        return not (self.is_loopback or self.skip_verify)

    @property
    def may_be_plaintext(self) -> bool:
        """Whether a server without TLS is acceptable."""
        return self.allow_plaintext and self.is_loopback


class Waker:
    """Ends waits in other threads at once: a flag and a socket that selectors can watch."""

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)

    def wake(self) -> None:
        """End every wait, now and from now on."""
        if not self._flag.is_set():
            self._flag.set()
            self._writer.send(b"x")

    @property
    def is_set(self) -> bool:
        """Whether somebody asked to stop."""
        return self._flag.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep that long or until woken; whether it was woken."""
        return self._flag.wait(seconds)

    def fileno(self) -> int:
        """For selectors: readable once woken."""
        return self._reader.fileno()

    def close(self) -> None:
        """Give the sockets back."""
        self._reader.close()
        self._writer.close()


def readable(source: socket.socket, waker: Waker | None, seconds: float) -> bool:
    """Wait until `source` can be read; False when the time is over or the waker was woken."""
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ, "source")
        if waker is not None:
            selector.register(waker, selectors.EVENT_READ, "waker")
        return any(key.data == "source" for key, _ in selector.select(seconds))


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What one batch brought. `absent` are UIDs that were asked for and did not come whole.

    A dropped connection keeps what had come completely; `broken` is then the error, and the caller
    stores the rest of the batch before it gives up.
    """

    messages: tuple[FetchedMessage, ...]
    absent: tuple[int, ...] = ()
    broken: Exception | None = None


class Mailbox(Protocol):
    """An open, logged-in IMAP session. Only UIDs are used, and reading never sets `\\Seen`."""

    capabilities: frozenset[str]

    def select(self, folder: str) -> MailboxState:
        """Open a folder read-only. FolderUnavailable where it does not exist."""
        ...

    def uids_after(self, uid: int) -> tuple[int, ...]:
        """All UIDs above this one, ascending. An error is an error, never a wider answer."""
        ...

    def existing(self, uids: Sequence[int]) -> frozenset[int]:
        """Those of the UIDs that the folder still holds."""
        ...

    def sizes(self, uids: Sequence[int]) -> dict[int, int]:
        """Size in bytes by UID, for those that exist."""
        ...

    def fetch(self, uids: Sequence[int], *, headers_only: bool = False) -> FetchResult:
        """The messages, byte for byte; with `headers_only` their header section, `truncated`."""
        ...

    def find(self, message_id: str) -> tuple[int, ...]:
        """UIDs in the open folder whose Message-ID header holds this id (no brackets)."""
        ...

    def append(self, folder: str, raw: bytes, when: datetime) -> None:
        """File a message as seen."""
        ...

    def idle(self, *, seconds: float, waker: Waker | None = None) -> bool:
        """Wait for news of the open folder at most so long; whether something was said."""
        ...

    def close(self) -> None:
        """Log out, whatever state the connection is in. Never raises."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class SendOutcome(StrEnum):
    """What is certain about a message that was offered to a server."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """How one SMTP session ended.

    `reason` is one of `mail.types.SendReason`; `code` and `reply` are the server's last answer (its
    text cut to 200 characters), `refused` the recipients it did not take, by address with code and
    text, `taken` those it was ready to deliver to. `final_dot_sent` says whether the end of the
    message left this process.
    """

    outcome: SendOutcome
    reason: str
    code: int | None = None
    reply: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    final_dot_sent: bool = False
    taken: tuple[str, ...] = ()


class Submission(Protocol):
    """A way out. One call is one session with at most one message."""

    def send(
        self,
        endpoint: Endpoint,
        *,
        envelope_from: str,
        recipients: Sequence[str],
        payload: bytes,
        copies: Sequence[str] = (),
        seconds: float = SESSION_SECONDS,
    ) -> SubmissionResult:
        """Offer the exact bytes once. Never raises for what the network or the server does.

        `copies` are recipients beside: without any of `recipients`, they get nothing either.
        `seconds` is what is left of the job's time: the session ends before it does.
        """
        ...

    def refusal(self, endpoint: Endpoint, *, envelope_from: str) -> SubmissionResult | None:
        """Connect, secure, log in and leave: why nothing could be sent, None where it could."""
        ...


class Transport(Protocol):
    """How an account's protocol is spoken: registered by name in `mail.registry`."""

    def open_mailbox(self, endpoint: Endpoint) -> Mailbox:
        """Connect, secure, log in. TransportError says what failed."""
        ...

    @property
    def submission(self) -> Submission:
        """The way out."""
        ...
