"""A Gmail label as a mailbox: read only, by UIDs of our own, with the history id as its cursor.

Gmail has no UIDs. A ledger gives each message one, in the same commit that moves the cursor, so
that everything which reads mailboxes reads this one too. Where the history does not reach back, the
label is listed anew under a cursor that was pinned before: what comes meanwhile is in the history
after it, and what is known already keeps its UID.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self

from approvals.exceptions import ContactRefused
from approvals.types import Grant
from guards.secrets import Secret
from mail.exceptions import FolderUnavailable, MailboxReadOnly
from mail.gateways.base import FetchResult, Waker
from mail.gateways.google.base import (
    AnswerTooLarge,
    BadAnswer,
    GoogleError,
    GoogleGateway,
    HeaderMessage,
    HistoryGone,
    MessageFacts,
    MessagePage,
    MessageReference,
    Missing,
    Profile,
    TimedOut,
)
from mail.types import FetchedMessage, MailboxState

#: What a message is taken to weigh before it was fetched: Gmail does not say so in its lists.
NOMINAL_BYTES = 256 * 1024
#: What the messages of one fetch may really weigh together. Those beyond come with the next pass.
HELD_BYTES = 48 * 1024 * 1024
#: From what size on a message may be one that the line does not bring in time.
LARGE_BYTES = 2 * 1024 * 1024
#: Seconds of fetching after which the reader says that it is still at it.
_RENEW_SECONDS = 30.0
#: What goes along with a message's bytes in an answer.
_BESIDE_BYTES = 64 * 1024
_NOT_MAIL = frozenset({"TRASH", "SPAM", "DRAFT"})


class Ledger(Protocol):
    """Which of Gmail's messages are known of one label, and how far its history was read."""

    def history_id(self) -> int | None:
        """The cursor; None where the label was never read to the end."""
        ...

    def enter(
        self,
        *,
        older: Sequence[MessageReference],
        newer: Sequence[MessageReference],
        history_id: int,
    ) -> None:
        """Give the unknown among them UIDs, in this order, and move the cursor: one commit.

        `older` were there before the account was: they are no news.
        """
        ...

    def renew(self) -> None:
        """Say that this reader is still at it."""
        ...

    def state(self) -> MailboxState:
        """What SELECT would say."""
        ...

    def uids_after(self, uid: int) -> tuple[int, ...]:
        """Ascending."""
        ...

    def references(self, uids: Sequence[int]) -> dict[int, MessageReference]:
        """Gmail's ids by UID."""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A label whose mailbox was proved: how it is asked, and what the profile said."""

    google: GoogleGateway
    grant: Grant
    token: Callable[[], Secret]
    profile: Profile
    ledger: Ledger
    label: str
    max_bytes: int


class GmailMailbox:
    """One pass or one watch over a label. Nothing in it can change anything at Google."""

    capabilities: frozenset[str] = frozenset()

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._pinned: int | None = opened.profile.history_id
        self._gone: set[int] = set()
        self._renewed_at = time.monotonic()

    def select(self, folder: str) -> MailboxState:
        """Read on in the history, or list the label where that is not possible."""
        if folder != self._opened.label:
            raise FolderUnavailable(f"this mailbox was opened for {self._opened.label!r} alone")
        ledger = self._opened.ledger
        cursor = ledger.history_id()
        try:
            if cursor is None:
                self._begin()
            else:
                found, history_id = self._history(cursor)
                ledger.enter(older=(), newer=found, history_id=history_id)
        except HistoryGone:
            self._list_anew()
        finally:
            self._pinned = None  # what was asked for at the opening is old by the next look
        return ledger.state()

    def uids_after(self, uid: int) -> tuple[int, ...]:
        """All that were given out above this one and are not known to be gone."""
        return tuple(one for one in self._opened.ledger.uids_after(uid) if one not in self._gone)

    def existing(self, uids: Sequence[int]) -> frozenset[int]:
        """Those of which Gmail has not said that they are gone."""
        return frozenset(uids) - self._gone

    def sizes(self, uids: Sequence[int]) -> dict[int, int]:
        """A nominal size each: to ask for the true ones would be a request for each."""
        known = self._opened.ledger.references(uids)
        nominal = min(NOMINAL_BYTES, self._opened.max_bytes)
        return dict.fromkeys(known.keys() - self._gone, nominal)

    def fetch(self, uids: Sequence[int], *, headers_only: bool = False) -> FetchResult:
        """The messages, byte for byte; those beyond the limit by their header, `truncated`."""
        known = self._opened.ledger.references(uids)
        got: dict[int, FetchedMessage] = {}
        broken: Exception | None = None
        held = 0
        for uid in sorted(known):
            if held > HELD_BYTES:
                break
            self._renew()
            try:
                message = self._fetch_one(uid, known[uid].id, headers_only)
            except (BadAnswer, AnswerTooLarge):
                continue  # this one does not come; those after it do
            except (GoogleError, ContactRefused) as error:
                broken = error
                break
            if message is None:
                self._gone.add(uid)
            else:
                got[uid] = message
                held += len(message.raw)
        absent = tuple(uid for uid in dict.fromkeys(uids) if uid not in got)
        return FetchResult(tuple(got.values()), absent, broken)

    def find(self, message_id: str) -> tuple[int, ...]:
        """Nothing is looked for in a mailbox that nothing is filed in."""
        return ()

    def append(self, folder: str, raw: bytes, when: datetime) -> None:
        """Refused: the connection may only read."""
        raise MailboxReadOnly

    def idle(self, *, seconds: float, waker: Waker | None = None) -> bool:
        """Gmail announces nothing here; the waker ends the wait."""
        if waker is not None:
            waker.wait(seconds)
        return False

    def close(self) -> None:
        """There is no connection to close: each request had its own."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _renew(self) -> None:
        """A fetch may take longer than a lease."""
        if time.monotonic() - self._renewed_at > _RENEW_SECONDS:
            self._opened.ledger.renew()
            self._renewed_at = time.monotonic()

    def _begin(self) -> None:
        """The first sight of the label: what lies there is older, what came meanwhile is news."""
        pinned = self._pin()
        listed = self._listed()
        try:
            newer, history_id = self._history(pinned)
        except HistoryGone:
            newer, history_id = [], pinned
        new_ids = {one.id for one in newer}
        older = [one for one in listed if one.id not in new_ids]
        self._opened.ledger.enter(older=older, newer=newer, history_id=history_id)

    def _list_anew(self) -> None:
        """Everything that is not known yet is news; the cursor is from before the listing."""
        pinned = self._pin()
        self._opened.ledger.enter(older=(), newer=self._listed(), history_id=pinned)

    def _pin(self) -> int:
        """Where the history stands now, asked for before anything is listed."""
        pinned, self._pinned = self._pinned, None
        if pinned is not None:
            return pinned
        opened = self._opened
        return opened.google.profile(grant=opened.grant, token=opened.token()).history_id

    def _listed(self) -> list[MessageReference]:
        """The whole label, oldest first."""
        opened = self._opened
        found: dict[str, MessageReference] = {}

        def one_page(page: str) -> MessagePage:
            return opened.google.list_messages(
                grant=opened.grant, token=opened.token(), label=opened.label, page=page
            )

        for listed in _pages(one_page, opened.ledger.renew):
            found |= {one.id: one for one in listed.messages}
        return list(found.values())[::-1]

    def _history(self, start: int) -> tuple[list[MessageReference], int]:
        """What came since, oldest first, and where the history stood when the last page came."""
        opened = self._opened
        found: dict[str, MessageReference] = {}
        last = start

        def one_page(page: str) -> MessagePage:
            nonlocal last
            told = opened.google.history(
                grant=opened.grant, token=opened.token(), label=opened.label, start=start, page=page
            )
            last = max(last, told.history_id)
            return MessagePage(told.messages, told.next_page)

        for told in _pages(one_page, opened.ledger.renew):
            for one in told.messages:
                found.setdefault(one.id, one)
        return list(found.values()), last

    def _fetch_one(self, uid: int, gmail_id: str, headers_only: bool) -> FetchedMessage | None:
        """The message; None where it is gone, or is no mail any more."""
        opened = self._opened
        try:
            if headers_only:
                return self._head(uid, gmail_id)
            whole = opened.google.message_raw(
                grant=opened.grant,
                token=opened.token(),
                message_id=gmail_id,
                max_bytes=opened.max_bytes * 4 // 3 + _BESIDE_BYTES,
            )
        except Missing:
            return None
        except AnswerTooLarge:
            return self._head(uid, gmail_id)
        except TimedOut:
            return self._head_of_large(uid, gmail_id)
        if whole.facts.labels & _NOT_MAIL:
            return None
        raw = whole.raw
        return FetchedMessage(uid, raw, _moment(whole.facts), _flags(whole.facts), len(raw))

    def _head_of_large(self, uid: int, gmail_id: str) -> FetchedMessage | None:
        """A large message that the line does not bring in time holds up nothing for ever."""
        head = self._head(uid, gmail_id)
        if head is not None and head.size <= LARGE_BYTES:
            raise TimedOut
        return head

    def _head(self, uid: int, gmail_id: str) -> FetchedMessage | None:
        opened = self._opened
        try:
            told = opened.google.message_headers(
                grant=opened.grant, token=opened.token(), message_id=gmail_id
            )
        except Missing:
            return None
        if told.facts.labels & _NOT_MAIL:
            return None
        raw, facts = _header_bytes(told), told.facts
        return FetchedMessage(uid, raw, _moment(facts), _flags(facts), told.size, truncated=True)


def _pages(ask: Callable[[str], MessagePage], renew: Callable[[], None]) -> list[MessagePage]:
    """All pages; BadAnswer where they go round in a circle."""
    pages, seen = [ask("")], {""}
    while pages[-1].next_page:
        page = pages[-1].next_page
        if page in seen:
            raise BadAnswer("the pages go round in a circle", field="nextPageToken")
        seen.add(page)
        renew()
        pages.append(ask(page))
    return pages


def _header_bytes(told: HeaderMessage) -> bytes:
    """A header section as Gmail tells it; a line break inside a value would be another header."""
    lines = (f"{name}: {' '.join(value.splitlines())}" for name, value in told.headers)
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "replace") + b"\r\n"


def _moment(facts: MessageFacts) -> datetime | None:
    try:
        return datetime.fromtimestamp(facts.internal_date / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _flags(facts: MessageFacts) -> frozenset[str]:
    return frozenset() if "UNREAD" in facts.labels else frozenset({"\\Seen"})
