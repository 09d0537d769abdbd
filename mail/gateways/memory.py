"""The memory siblings of IMAP and SMTP: a mail server inside the process, with switches for faults.

It keeps the contract of the real gateways (the same contract tests run against both), so that
services can be tried without a network. Everything is guarded by one lock: watchers are threads.
"""

from __future__ import annotations

import itertools
import re
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from mail.exceptions import ConnectionLost, FolderUnavailable, LoginRefused
from mail.gateways.base import (
    SESSION_SECONDS,
    Endpoint,
    FetchResult,
    Mailbox,
    SendOutcome,
    Submission,
    SubmissionResult,
    Waker,
    readable,
)
from mail.types import FetchedMessage, MailboxState, SendReason

_validities = itertools.count(1)
_HEADER_END = re.compile(rb"\r?\n\r?\n")


@dataclass(slots=True)
class MemoryFolder:
    """One folder: its validity, its next UID, and its messages by UID."""

    uidvalidity: int = field(default_factory=lambda: next(_validities))
    uidnext: int = 1
    messages: dict[int, FetchedMessage] = field(default_factory=dict)

    def add(self, raw: bytes, when: datetime, flags: frozenset[str] = frozenset()) -> int:
        """File one message; its UID."""
        uid = self.uidnext
        self.messages[uid] = FetchedMessage(uid, raw, when, flags, len(raw))
        self.uidnext += 1
        return uid


@dataclass(slots=True)
class SubmittedMail:
    """One message that the server took."""

    envelope_from: str
    recipients: tuple[str, ...]
    payload: bytes


class MemoryServer:
    """Users, folders and what was submitted.

    Faults: `down` refuses connections, `broken_uids` end the connection when one of them is
    fetched, `withheld_uids` never come, `next_result` is answered to the next submission instead of
    taking it (`taken_with_next_result` says whether the server kept the message all the same),
    `refused_recipients` are turned away. `submissions` counts sessions, taken or not, `logins`
    those of mailboxes.
    """

    def __init__(self, **passwords: str) -> None:
        self.lock = threading.RLock()
        self.passwords = dict(passwords)
        self.folders: dict[tuple[str, str], MemoryFolder] = {}
        self.listeners: set[MemoryMailbox] = set()
        self.capabilities = frozenset({"IMAP4REV1", "IDLE", "UIDPLUS", "MOVE"})
        self.down = False
        self.broken_uids: set[int] = set()
        self.withheld_uids: set[int] = set()
        self.sent: list[SubmittedMail] = []
        self.submissions = 0
        self.logins = 0
        self.next_result: SubmissionResult | None = None
        self.taken_with_next_result = False
        self.refused_recipients: set[str] = set()

    def add_user(self, username: str, password: str) -> None:
        """A mailbox with its INBOX."""
        self.passwords[username] = password
        self.folder(username, "INBOX")

    def folder(self, username: str, name: str = "INBOX") -> MemoryFolder:
        """That folder, made at first use."""
        with self.lock:
            return self.folders.setdefault((username, name), MemoryFolder())

    def deliver(self, username: str, raw: bytes, *, when: datetime | None = None) -> int:
        """Put a message into the INBOX and tell whoever waits; its UID."""
        with self.lock:
            uid = self.folder(username).add(raw, when or datetime.now(UTC))
            for listener in list(self.listeners):
                listener.hear()
        return uid

    def recreate(self, username: str, name: str = "INBOX") -> None:
        """The same messages in a new folder: other validity, UIDs from 1."""
        with self.lock:
            old = self.folder(username, name)
            new = MemoryFolder()
            for message in old.messages.values():
                new.add(message.raw, message.internal_date or datetime.now(UTC), message.flags)
            self.folders[username, name] = new

    def refusals(self, addresses: Sequence[str]) -> dict[str, str]:
        """What it says to those of the recipients that it does not take."""
        return {one: "550 no such user" for one in addresses if one in self.refused_recipients}

    def drop_connections(self) -> None:
        """End every open session, as a server that says BYE."""
        with self.lock:
            for listener in list(self.listeners):
                listener.drop()


class MemoryTransport:
    """Speaks to one `MemoryServer`, whatever the endpoint's host is."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.submission: Submission = MemorySubmission(server)

    def open_mailbox(self, endpoint: Endpoint) -> Mailbox:
        """Log in."""
        if self.server.down:
            raise ConnectionLost(f"{endpoint.host}:{endpoint.port}: connection refused")
        if self.server.passwords.get(endpoint.username) != endpoint.password:
            raise LoginRefused(f"{endpoint.host} refused the login of {endpoint.username!r}")
        self.server.logins += 1
        return MemoryMailbox(self.server, endpoint.username)


class MemoryMailbox:
    """One session of one user."""

    def __init__(self, server: MemoryServer, username: str) -> None:
        self._server = server
        self._username = username
        self._folder = MemoryFolder()
        self._alive = True
        self._ear, self._mouth = socket.socketpair()
        self.capabilities = server.capabilities
        with server.lock:
            server.listeners.add(self)

    def select(self, folder: str) -> MailboxState:
        """Open a folder that exists."""
        with self._server.lock:
            self._check()
            known = self._server.folders.get((self._username, folder))
            if known is None:
                raise FolderUnavailable(f"folder {folder!r} does not exist")
            self._folder = known
            return MailboxState(known.uidvalidity, known.uidnext, len(known.messages))

    def uids_after(self, uid: int) -> tuple[int, ...]:
        """Ascending."""
        with self._server.lock:
            self._check()
            return tuple(found for found in sorted(self._folder.messages) if found > uid)

    def existing(self, uids: Sequence[int]) -> frozenset[int]:
        """Those still there."""
        with self._server.lock:
            self._check()
            return frozenset(uids) & frozenset(self._folder.messages)

    def sizes(self, uids: Sequence[int]) -> dict[int, int]:
        """Sizes of those that exist."""
        with self._server.lock:
            self._check()
            messages = self._folder.messages
            return {uid: messages[uid].size for uid in uids if uid in messages}

    def fetch(self, uids: Sequence[int], *, headers_only: bool = False) -> FetchResult:
        """Whole messages up to a broken one."""
        with self._server.lock:
            self._check()
            got: dict[int, FetchedMessage] = {}
            broken: Exception | None = None
            for uid in sorted(set(uids)):
                if uid in self._server.broken_uids:
                    self.drop()
                    broken = ConnectionLost("the connection ended inside a literal")
                    break
                message = self._folder.messages.get(uid)
                if message is not None and uid not in self._server.withheld_uids:
                    got[uid] = _headers(message) if headers_only else message
            absent = tuple(uid for uid in dict.fromkeys(uids) if uid not in got)
            return FetchResult(tuple(got.values()), absent, broken)

    def find(self, message_id: str) -> tuple[int, ...]:
        """By the Message-ID header's text."""
        wanted = message_id.encode("utf-8", "replace").lower()
        with self._server.lock:
            self._check()
            return tuple(
                uid
                for uid, message in sorted(self._folder.messages.items())
                if wanted in _message_id(message.raw).lower()
            )

    def append(self, folder: str, raw: bytes, when: datetime) -> None:
        """File it as seen."""
        with self._server.lock:
            self._check()
            if (self._username, folder) not in self._server.folders:
                raise FolderUnavailable(f"folder {folder!r} does not exist")
            self._server.folder(self._username, folder).add(raw, when, frozenset({"\\Seen"}))

    def idle(self, *, seconds: float, waker: Waker | None = None) -> bool:
        """Wait for a delivery or the end of the connection."""
        self._check()
        heard = readable(self._ear, waker, seconds)
        if heard:
            self._ear.recv(4096)
        self._check()
        return heard

    def hear(self) -> None:
        """Something arrived."""
        with suppress(OSError):
            self._mouth.send(b"x")

    def drop(self) -> None:
        """The server ends this session."""
        self._alive = False
        self.hear()

    def close(self) -> None:
        """Leave."""
        with self._server.lock:
            self._server.listeners.discard(self)
            self._alive = False
        self._ear.close()
        self._mouth.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self) -> None:
        if not self._alive or self._server.down:
            raise ConnectionLost("the connection is closed")


class MemorySubmission:
    """Takes mail for one `MemoryServer` and delivers to its own users."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server

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
        """Answer as told, else take it."""
        server = self._server
        with server.lock:
            server.submissions += 1
            if server.down:
                return SubmissionResult(SendOutcome.FAILED, SendReason.NOT_CONNECTED)
            told, server.next_result = server.next_result, None
            if told is not None and not server.taken_with_next_result:
                return told
            refused = server.refusals(recipients)
            if len(refused) == len(set(recipients)):
                return SubmissionResult(
                    SendOutcome.FAILED, SendReason.RECIPIENTS_REFUSED, 550, "", refused
                )
            refused |= server.refusals(copies)
            taken = tuple(one for one in (*recipients, *copies) if one not in refused)
            server.sent.append(SubmittedMail(envelope_from, taken, payload))
            for address in taken:
                if address in server.passwords:
                    server.deliver(address, payload)
            return told or SubmissionResult(
                SendOutcome.ACCEPTED,
                SendReason.SMTP_250,
                250,
                "taken",
                refused,
                final_dot_sent=True,
                taken=taken,
            )

    def refusal(self, endpoint: Endpoint, *, envelope_from: str) -> SubmissionResult | None:
        """The server's own users have to know their password; anybody else is let in."""
        with self._server.lock:
            if self._server.down:
                return SubmissionResult(SendOutcome.FAILED, SendReason.NOT_CONNECTED)
            known = self._server.passwords.get(endpoint.username, endpoint.password)
            if known != endpoint.password:
                return SubmissionResult(SendOutcome.FAILED, SendReason.LOGIN_REFUSED, 535)
        return None


def _headers(message: FetchedMessage) -> FetchedMessage:
    end = _HEADER_END.search(message.raw)
    raw = message.raw[: end.end()] if end else message.raw
    return FetchedMessage(
        message.uid, raw, message.internal_date, message.flags, message.size, truncated=True
    )


def _message_id(raw: bytes) -> bytes:
    found = re.search(rb"(?im)^message-id:(.*(?:\r?\n[ \t].*)*)", _HEADER_END.split(raw, 1)[0])
    return found.group(1) if found else b""
