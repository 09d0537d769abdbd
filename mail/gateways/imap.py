"""IMAP through imap-tools: UID commands only, BODY.PEEK, TLS by port, bounded waits.

The batch FETCH is driven on imaplib's own level: a batch survives a NO, an EXPUNGE, flags of other
mails and a connection that ends inside a literal, and keeps what had come whole.
"""

from __future__ import annotations

import imaplib
import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from imap_tools.errors import ImapToolsError, MailboxFolderSelectError, MailboxLoginError
from imap_tools.mailbox import BaseMailBox, MailBox, MailBoxStartTls, MailBoxUnencrypted

from mail.exceptions import (
    CertificateRefused,
    ConnectionLost,
    FolderUnavailable,
    LoginRefused,
    TlsRequired,
    TransportError,
)
from mail.gateways import responses, tls
from mail.gateways.base import (
    TIMEOUT,
    Endpoint,
    FetchResult,
    Mailbox,
    Submission,
    Waker,
    readable,
)
from mail.gateways.smtp import SmtpSubmission
from mail.types import FetchedMessage, MailboxState

Answer = TypeVar("Answer")

_META = "(UID FLAGS INTERNALDATE RFC822.SIZE BODY.PEEK[])"
_HEADERS = "(UID FLAGS INTERNALDATE RFC822.SIZE BODY.PEEK[HEADER])"


class ImapTransport:
    """Opens IMAP mailboxes, and sends by SMTP."""

    submission: Submission = SmtpSubmission()

    def open_mailbox(self, endpoint: Endpoint) -> Mailbox:
        """Connect, secure and log in within the house's timeout."""
        with _translated(endpoint):
            box = _connect(endpoint)
        try:
            return ImapMailbox(_log_in(box, endpoint), endpoint)
        except BaseException:
            _shut(box)
            raise


class ImapMailbox:
    """One logged-in session."""

    def __init__(self, box: BaseMailBox, endpoint: Endpoint) -> None:
        self._box = box
        self._endpoint = endpoint
        self.capabilities = self._call(lambda: _capabilities(box.client))

    def select(self, folder: str) -> MailboxState:
        """EXAMINE: the server itself then refuses to change a flag."""
        client = self._box.client
        try:
            selected = self._call(lambda: self._box.folder.set(folder, readonly=True))
        except MailboxFolderSelectError as error:
            raise FolderUnavailable(
                f"folder {folder!r} on {self._endpoint.host} cannot be opened: {_said(error)}"
            ) from error
        validity = _number(client, "UIDVALIDITY")
        if validity is None:
            raise FolderUnavailable(f"folder {folder!r} has no UIDVALIDITY: it cannot be followed")
        state = MailboxState(
            uidvalidity=validity,
            uidnext=_number(client, "UIDNEXT") or max(self._search("UID 1:*"), default=0) + 1,
            exists=int(selected[1][0] or 0),
            modseq=_number(client, "HIGHESTMODSEQ"),
        )
        _news(client)  # SELECT's own EXISTS is no news
        return state

    def uids_after(self, uid: int) -> tuple[int, ...]:
        """`n:*` names the last mail even where it lies below n, so the answer is filtered."""
        return tuple(sorted(found for found in self._search(f"UID {uid + 1}:*") if found > uid))

    def existing(self, uids: Sequence[int]) -> frozenset[int]:
        """Which of them are still there."""
        return (
            frozenset(self._search(f"UID {_set(uids)}")) & frozenset(uids) if uids else frozenset()
        )

    def sizes(self, uids: Sequence[int]) -> dict[int, int]:
        """By a FETCH of sizes only; a NO because one has gone keeps the others."""
        if not uids:
            return {}
        collected, broken = self._fetch(uids, "(UID RFC822.SIZE)")
        if broken is not None:
            raise broken
        wanted = frozenset(uids)
        return {
            item.uid: item.size
            for item in responses.read(collected)
            if item.uid in wanted and item.size is not None
        }

    def fetch(self, uids: Sequence[int], *, headers_only: bool = False) -> FetchResult:
        """One UID FETCH for the batch."""
        if not uids:
            return FetchResult(())
        collected, broken = self._fetch(uids, _HEADERS if headers_only else _META)
        wanted = frozenset(uids)
        got: dict[int, FetchedMessage] = {}
        for item in responses.read(collected):
            if item.uid in wanted and item.body is not None and (item.body or item.size == 0):
                got[item.uid] = _message(item, item.body, truncated=headers_only)
        absent = tuple(uid for uid in dict.fromkeys(uids) if uid not in got)
        return FetchResult(tuple(got[uid] for uid in sorted(got)), absent, broken)

    def find(self, message_id: str) -> tuple[int, ...]:
        """SEARCH HEADER; the id is quoted, and one that cannot be quoted is found nowhere."""
        if re.search(r'[\r\n\0"\\]', message_id) or not message_id.isascii():
            return ()
        return tuple(sorted(self._search(f'HEADER Message-ID "{message_id}"')))

    def append(self, folder: str, raw: bytes, when: datetime) -> None:
        """APPEND the exact bytes."""
        self._call(lambda: self._box.append(raw, folder, dt=when, flag_set=["\\Seen"]))

    def idle(self, *, seconds: float, waker: Waker | None = None) -> bool:
        """IDLE until the server says anything at all; the reader then looks for itself."""
        client = self._box.client
        if _news(client):
            return True
        tag = self._call(lambda: _start_idle(client))
        heard = _news(client) or _pending(client) or readable(client.sock, waker, seconds)
        self._call(lambda: _end_idle(self._box, tag))
        return _news(client) or heard

    def close(self) -> None:
        """LOGOUT if the connection still lives, then close it in any case."""
        _shut(self._box)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, act: Callable[[], Answer]) -> Answer:
        with _translated(self._endpoint):
            return act()

    def _search(self, criteria: str) -> list[int]:
        status, found = self._call(lambda: self._box.client.uid("SEARCH", criteria))
        if status != "OK":
            raise TransportError(
                f"{self._endpoint.host} refused SEARCH {criteria}: {found!r}"[:300]
            )
        # Long answers may come in several lines.
        return [int(uid) for line in found for uid in (line or b"").split() if uid.isdigit()]

    def _fetch(
        self, uids: Sequence[int], attributes: str
    ) -> tuple[list[object], TransportError | None]:
        """All FETCH data that came, and the error that ended the command early, if one did."""
        client = self._box.client
        try:
            status, found = self._call(lambda: client.uid("FETCH", _set(uids), attributes))
        except TransportError as error:
            return _left_over(client), error
        if status == "OK":
            return list(found), None
        came = _left_over(client)
        if status == "NO":
            self._call(client.noop)
            return came, None
        return came, TransportError(f"{self._endpoint.host} answered {status} to FETCH")


def _connect(endpoint: Endpoint) -> BaseMailBox:
    host, port, context = endpoint.host, endpoint.port, tls.context(endpoint)
    if port == tls.IMAPS:
        return MailBox(host, port, timeout=TIMEOUT, ssl_context=context)
    try:
        return MailBoxStartTls(host, port, timeout=TIMEOUT, ssl_context=context)
    except imaplib.IMAP4.abort as error:
        if "not supported" not in str(error):
            raise
        if endpoint.may_be_plaintext:
            return MailBoxUnencrypted(host, port, timeout=TIMEOUT)
        raise TlsRequired(f"{host}:{port} offers no STARTTLS") from error


def _log_in(box: BaseMailBox, endpoint: Endpoint) -> BaseMailBox:
    try:
        with _translated(endpoint):
            if (endpoint.username + endpoint.password).isascii():
                return box.login(endpoint.username, endpoint.password, initial_folder=None)
            return box.login_utf8(endpoint.username, endpoint.password, initial_folder=None)
    except (MailboxLoginError, LoginRefused) as error:
        raise LoginRefused(
            f"{endpoint.host} refused the login of {endpoint.username!r}: check the account's user "
            "name and secret"
        ) from error


@contextmanager
def _translated(endpoint: Endpoint) -> Iterator[None]:
    """Foreign errors end here. Select and login errors pass, for their callers to explain."""
    where = f"{endpoint.host}:{endpoint.port}"
    try:
        yield
    except (MailboxFolderSelectError, MailboxLoginError):
        raise
    except ssl.SSLCertVerificationError as error:
        raise CertificateRefused(f"the certificate of {where}: {error.verify_message}") from error
    except (imaplib.IMAP4.abort, OSError, EOFError) as error:
        raise ConnectionLost(f"{where}: {error or type(error).__name__}"[:300]) from error
    except (imaplib.IMAP4.error, ImapToolsError, ValueError) as error:
        raise TransportError(f"{where}: {_said(error)}") from error


def _said(error: Exception) -> str:
    return str(error)[:200]


def _shut(box: BaseMailBox) -> None:
    """LOGOUT is a courtesy: whatever it brings, the socket is closed."""
    with suppress(Exception):
        box.client.sock.settimeout(2.0)
        box.logout()
    with suppress(Exception):
        box.client.shutdown()


def _capabilities(client: imaplib.IMAP4) -> frozenset[str]:
    """Asked for again after login: servers tell more to those they know."""
    _, listed = client.capability()
    return frozenset((listed[-1] or b"").decode("ascii", "replace").upper().split())


def _number(client: imaplib.IMAP4, code: str) -> int | None:
    _, values = client.response(code)
    digits = values[-1] if values else None
    return int(digits) if isinstance(digits, bytes) and digits.isdigit() else None


def _left_over(client: imaplib.IMAP4) -> list[object]:
    """What imaplib collected before a FETCH failed."""
    collected: Any = client.untagged_responses
    return list(collected.pop("FETCH", []))


def _news(client: imaplib.IMAP4) -> bool:
    """Whether mail was announced inside the answers of other commands; asking forgets it.

    A server says each EXISTS once: what came during a pass is never repeated in IDLE.
    """
    collected: Any = client.untagged_responses
    return bool(collected.pop("EXISTS", None))


def _start_idle(client: Any) -> bytes:
    """IDLE up to the server's `+`; what it says before is collected as usual."""
    tag: bytes = client._command("IDLE")
    while client._get_response() is not None:
        if client.tagged_commands.get(tag):
            status, said = client.tagged_commands.pop(tag)
            raise TransportError(f"IDLE was refused: {status} {said!r}"[:300])
    return tag


def _end_idle(box: BaseMailBox, tag: bytes) -> None:
    box.client.send(b"DONE\r\n")
    box.consume_until_tagged_response(tag)


def _pending(client: imaplib.IMAP4) -> bool:
    """Whether bytes already wait in imaplib's buffer or the TLS layer, where a selector is blind.

    What came in one packet with the `+` lies in the buffer.
    """
    if isinstance(client.sock, ssl.SSLSocket) and client.sock.pending() > 0:
        return True
    kept: Any = getattr(client, "_readbuf", None)  # imaplib's own buffer from Python 3.14 on
    return bool(kept) if kept is not None else _buffered(client)


def _buffered(client: Any) -> bool:
    """Look into the buffered file without waiting: it asks the socket where it holds nothing."""
    timeout = client.sock.gettimeout()
    client.sock.settimeout(0)
    try:
        return bool(client.file.peek(1))
    except OSError:
        return False  # nothing there; a broken line shows at the next command
    finally:
        client.sock.settimeout(timeout)


def _set(uids: Sequence[int]) -> str:
    """A sequence set in its shortest form: `1:3,7`."""
    ranges: list[list[int]] = []
    for uid in sorted(set(uids)):
        if ranges and uid == ranges[-1][1] + 1:
            ranges[-1][1] = uid
        else:
            ranges.append([uid, uid])
    return ",".join(f"{low}" if low == high else f"{low}:{high}" for low, high in ranges)


def _message(item: responses.FetchItem, body: bytes, *, truncated: bool) -> FetchedMessage:
    return FetchedMessage(
        uid=item.uid,
        raw=body,
        internal_date=item.internal_date,
        flags=item.flags or frozenset(),
        size=item.size if item.size is not None else len(body),
        truncated=truncated,
    )
