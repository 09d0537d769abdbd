"""Ingest: a batch of fetched mail becomes bytes in the store, then rows, in one commit (mail.md).

Outside the transaction: raw bytes are stored durably, and each message is parsed and assessed with
one snapshot of the address book. Inside: messages with everything that belongs to them, one
Decision each, events, and the cursor, under a lease that is checked in that same transaction. A
message that breaks anything is quarantined with its raw bytes and holds up nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import structlog
from django.db import DataError
from django.utils import timezone

from guards.exceptions import CountersignError
from guards.services import keys
from guards.services.units import unit_of_work
from mail import admission, mime
from mail.exceptions import LeaseLost
from mail.gateways import blobs
from mail.models import Account, FolderCursor, Location, Message
from mail.services import accounts, leases, preparing, records
from mail.services.leases import Lease
from mail.services.preparing import Position, Prepared
from mail.types import FetchedMessage, IngestReport

log = structlog.get_logger(__name__)

#: Attached keys of one message that are looked at.
KEYS_OF_ONE_MAIL = 3


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
    prepared = preparing.prepare(account, position, new)
    places = {sha256: [copy.uid for copy in copies] for sha256, copies in by_digest.items()}
    _store(account, lease, position, prepared, places)
    _keep_attached_keys(account, prepared)
    return _report(len(fetched), prepared)


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
            broken = preparing.broken_by(error)
            one.parsed = mime.unreadable(one.fetched.raw, quarantine=broken)
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
