"""Ingest: a batch of fetched mail becomes bytes in the store, then rows, in one commit (mail.md).

Outside the transaction: raw bytes are stored durably, and each message is parsed and assessed with
one snapshot of the address book. Inside: messages with everything that belongs to them, one
Decision each, events, and the cursor, under a lease that is checked in that same transaction. A
message that breaks anything is quarantined with its raw bytes and holds up nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

import structlog
from django.db import DatabaseError, DataError
from django.utils import timezone

from guards import openpgp
from guards.exceptions import CountersignError
from guards.selectors import contact_book, execute_not_before, replay_known
from guards.services import keys
from guards.services.units import unit_of_work
from guards.types import SignedStructure, TransportFacts
from mail import admission
from mail.assessment import Assessment
from mail.exceptions import LeaseLost
from mail.gateways import blobs
from mail.models import Account, FolderCursor, Location, Message
from mail.services import accounts, leases, records
from mail.services.leases import Lease
from mail.types import FetchedMessage, IngestReport, MimeNode, ParsedMessage

log = structlog.get_logger(__name__)

#: Attached keys of one message that are looked at.
KEYS_OF_ONE_MAIL = 3


@dataclass(frozen=True, slots=True)
class Position:
    """Where a batch stands in its folder, and how far the cursor may move once it is stored.

    `expected` is the cursor's `last_uid` as the pass knows it. Messages up to `first_pass_until`
    were there before us: they neither notify nor start anything. `completes` says that the folder
    holds nothing beyond this batch; `modseq` is what SELECT said then.
    """

    folder: str
    uidvalidity: int
    expected: int
    advance_to: int
    first_pass_until: int = 0
    completes: bool = False
    modseq: int | None = None


@dataclass(slots=True)
class Prepared:
    """One distinct message of a batch with what was found out outside the transaction."""

    sha256: str
    fetched: FetchedMessage
    parsed: ParsedMessage
    assessment: Assessment
    received_at: datetime
    first_pass: bool
    uids: list[int] = field(default_factory=list)

    @property
    def quarantine(self) -> str:
        """Why only raw bytes and outer headers count, or empty."""
        return self.parsed.quarantine or ""

    @property
    def executes(self) -> bool:
        """Whether it starts work."""
        return admission.executes(self.assessment.judgement)


def store_batch(
    *, account: Account, lease: Lease, position: Position, fetched: Sequence[FetchedMessage]
) -> IngestReport:
    """Store a batch and move the cursor with it. Repeating it stores nothing twice.

    LeaseLost where another process has the account by now; then nothing of this batch is stored.
    """
    by_digest: dict[str, list[FetchedMessage]] = {}
    for message in fetched:
        by_digest.setdefault(hashlib.sha256(message.raw).hexdigest(), []).append(message)
    known = set(
        Message.objects.filter(account=account, sha256__in=by_digest).values_list(
            "sha256", flat=True
        )
    )
    new = {sha256: copies for sha256, copies in by_digest.items() if sha256 not in known}
    blobs.put_all({sha256: copies[0].raw for sha256, copies in new.items()})
    prepared = _prepare(account, position, new)
    places = {sha256: [copy.uid for copy in copies] for sha256, copies in by_digest.items()}
    _store(account, lease, position, prepared, places)
    _keep_attached_keys(account, prepared)
    return _report(len(fetched), prepared)


def _prepare(
    account: Account, position: Position, new: dict[str, list[FetchedMessage]]
) -> list[Prepared]:
    surroundings = admission.Surroundings(
        account=account,
        book=contact_book(),
        own_addresses=admission.own_addresses(),
        verifier=openpgp.verifier(),
        now=timezone.now(),
        not_before=execute_not_before(),
    )
    started: set[str] = set()
    made = []
    for sha256, copies in new.items():
        one = _prepare_one(sha256, copies, surroundings, position, _replayed(started))
        if one.executes and one.assessment.replay_key:
            started.add(one.assessment.replay_key)
        made.append(one)
    return made


def _prepare_one(
    sha256: str,
    copies: Sequence[FetchedMessage],
    surroundings: admission.Surroundings,
    position: Position,
    replayed: Callable[[str], bool],
) -> Prepared:
    first = copies[0]
    received_at = min(first.internal_date or surroundings.now, surroundings.now)
    first_pass = first.uid <= position.first_pass_until

    def judged(parsed: ParsedMessage) -> Assessment:
        return admission.judge(
            parsed,
            surroundings,
            received_at=received_at,
            partial=first.truncated or parsed.quarantine is not None,
            first_pass=first_pass,
            replayed=replayed,
        )

    try:
        parsed = admission.parse(first.raw, surroundings)
        assessment = judged(parsed)
    except DatabaseError:
        raise
    except Exception as error:
        log.exception("mail.poison", account=surroundings.account.name, uid=first.uid)
        parsed = _unreadable(sha256, first, f"error.{type(error).__name__}")
        assessment = judged(parsed)
    return Prepared(
        sha256, first, parsed, assessment, received_at, first_pass, [copy.uid for copy in copies]
    )


def _replayed(started: set[str]) -> Callable[[str], bool]:
    """Whether a key has started something: by the ledger, by mail that waits, or in this batch."""

    def known(key: str) -> bool:
        waiting = (Message.Execution.DUE, Message.Execution.TAKEN)
        return (
            key in started
            or bool(replay_known([key]))
            or Message.objects.filter(replay_key=key, execution__in=waiting).exists()
        )

    return known


def _unreadable(sha256: str, fetched: FetchedMessage, reason: str) -> ParsedMessage:
    """What stands for a message that broke the parser: its bytes, and no claim about anything."""
    return ParsedMessage(
        sha256=sha256,
        size=len(fetched.raw),
        sender=None,
        from_all=(),
        to=(),
        cc=(),
        reply_to=(),
        subject="",
        date=None,
        message_id=None,
        in_reply_to=(),
        references=(),
        text="",
        html=None,
        parts=(),
        structure=MimeNode("", "application/octet-stream", len(fetched.raw)),
        facts=TransportFacts(sender=None, structure=SignedStructure.NONE),
        signed_text=None,
        signed_to=(),
        loop=None,
        headers=(),
        defects=("quarantined",),
        quarantine=reason[:64],
    )


def _store(
    account: Account,
    lease: Lease,
    position: Position,
    prepared: Sequence[Prepared],
    places: dict[str, list[int]],
) -> None:
    """One commit; where the database refuses a value, halves, down to the one to quarantine."""
    try:
        with unit_of_work():
            leases.hold_in_writer(lease=lease)
            _move_cursor(account, position)
            records.write(account=account, folder=position.folder, prepared=prepared)
            _place(account, position, places)
            accounts.note_success(account=account)
    except (DataError, ValueError) as error:
        if len(prepared) > 1:
            middle = len(prepared) // 2
            still = replace(position, advance_to=position.expected, completes=False)
            first, rest = prepared[:middle], prepared[middle:]
            _store(account, lease, still, first, _only(places, first))
            _store(account, lease, position, rest, places)
        elif prepared and not prepared[0].quarantine:
            one = prepared[0]
            log.exception("mail.poison", account=account.name, uid=one.fetched.uid)
            reason = f"error.{type(error).__name__}"
            one.parsed = _unreadable(one.sha256, one.fetched, reason)
            one.assessment = replace(one.assessment, judgement=admission.HELD_AS_POISON)
            _store(account, lease, position, [one], places)
        else:
            raise


def _only(places: dict[str, list[int]], prepared: Sequence[Prepared]) -> dict[str, list[int]]:
    return {one.sha256: places[one.sha256] for one in prepared}


def _move_cursor(account: Account, position: Position) -> None:
    """From where this pass knows it to be, or not at all."""
    ending = {"first_pass_done": True, "modseq": position.modseq} if position.completes else {}
    moved = FolderCursor.objects.filter(
        account=account,
        folder=position.folder,
        uidvalidity=position.uidvalidity,
        last_uid=position.expected,
    ).update(last_uid=position.advance_to, updated_at=timezone.now(), **ending)
    if not moved:
        raise LeaseLost(f"the cursor of {account.name}/{position.folder} was moved by another pass")


def _place(account: Account, position: Position, places: dict[str, list[int]]) -> None:
    """Say where each message lies, those that were known before included (UIDVALIDITY change)."""
    ids = dict(
        Message.objects.filter(account=account, sha256__in=places).values_list("sha256", "pk")
    )
    Location.objects.bulk_create(
        [
            Location(
                message_id=ids[sha256],
                account=account,
                folder=position.folder,
                uidvalidity=position.uidvalidity,
                uid=uid,
            )
            for sha256, uids in places.items()
            for uid in uids
        ],
        ignore_conflicts=True,
    )


def _keep_attached_keys(account: Account, prepared: Iterable[Prepared]) -> None:
    """Keys that came with mail wait for a person; they count in no verdict (pgp-verify-19)."""
    for one in prepared:
        attached = (part for part in one.parsed.parts if part.type == "application/pgp-keys")
        for part in islice(attached, KEYS_OF_ONE_MAIL):
            sender = one.parsed.sender.address if one.parsed.sender else ""
            try:
                keys.record_candidate(
                    key=part.content, seen_from=sender, source=f"mail to {account.name}"
                )
            except CountersignError as error:
                log.warning("mail.key_not_read", account=account.name, reason=error.code)


def _report(fetched: int, prepared: Iterable[Prepared]) -> IngestReport:
    stored = list(prepared)
    return IngestReport(
        fetched=fetched,
        stored=len(stored),
        known=fetched - len(stored),
        quarantined=sum(1 for one in stored if one.quarantine),
        admitted=sum(1 for one in stored if one.executes),
        first_pass=any(one.first_pass for one in stored),
    )
