"""The words of `explain`: which book and identity apply, and the exact shape of an answer.

Works without a database: what cannot be read there is simply not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import Error, connection

from guards import openpgp, selectors
from guards.addresses import normalise, normalise_exact
from guards.exceptions import InvalidInput, OpenPGPUnavailable
from guards.models import Identity
from guards.openpgp import Verifier, packets
from guards.selectors import ContactBook, ContactEntry
from guards.types import Pin, Rwx, TrustEvidence
from mail import admission, assessment, mime
from mail.assessment import Assessment, Viewpoint
from mail.types import ParsedMessage, Provider

SCHEMA = "explain/1"

#: The identity under which rights stand that were given on the command line.
_GIVEN = 0

_EMPTY_BOOK = ContactBook({}, ())


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the database has to say; by default there is none."""

    identity: Identity | None = None
    book: ContactBook = _EMPTY_BOOK
    own_addresses: frozenset[str] = frozenset()
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything but the message that an answer rests on. `identity_id` names rights in `book`."""

    book: ContactBook
    viewpoint: Viewpoint
    identity_id: int | None
    provider: Provider
    loopback: bool
    now: datetime
    not_before: datetime | None
    verifier: Verifier


def build_setting(
    *,
    contacts: Sequence[str],
    pins: Sequence[str],
    identity: str | None,
    provider: Provider,
    loopback: bool,
    now: datetime,
) -> Setting:
    """The setting of a run. InvalidInput says what is wrong with a contact, a pin or an address."""
    email = None if identity is None else normalise_exact(identity, field="--identity")
    given = bool(contacts or pins)
    book = _given_book(contacts, pins) if given else None
    stored = _stored(email, whole=not given)
    known = stored.identity
    return Setting(
        book=stored.book if book is None else book,
        viewpoint=_viewpoint(email, known, stored.own_addresses),
        identity_id=_GIVEN if given else (known.pk if known else None),
        provider=provider,
        loopback=loopback,
        now=now,
        not_before=stored.not_before,
        verifier=openpgp.verifier(),
    )


def explain(raw: bytes, *, file: str, setting: Setting) -> dict[str, object]:
    """What the system makes of these bytes: one JSON object, its keys in the documented order."""
    parsed, assessed = judge(raw, setting=setting)
    return {"schema": SCHEMA, "file": file} | message_document(parsed) | _verdict(assessed)


def judge(raw: bytes, *, setting: Setting) -> tuple[ParsedMessage, Assessment]:
    """The message in these bytes, and what it is worth in this setting."""
    parsed = mime.parse(
        raw,
        provider=setting.provider,
        loopback=setting.loopback,
        own_addresses=setting.viewpoint.own_addresses,
    )
    assessed = assessment.assess(
        parsed,
        viewpoint=setting.viewpoint,
        pins=setting.book.pins,
        rwx=lambda address: setting.book.rwx(setting.identity_id, address),
        now=setting.now,
        received_at=setting.now,
        verifier=setting.verifier,
        max_age=timedelta(hours=settings.EXECUTE_MAX_AGE_HOURS),
        not_before=setting.not_before,
    )
    return parsed, assessed


def message_document(parsed: ParsedMessage) -> dict[str, object]:
    """What the bytes say, before anybody judges them."""
    sender = parsed.sender
    return {
        "from": sender.address if sender else None,
        "from_name": sender.name if sender else "",
        "to": [one.address for one in parsed.to],
        "cc": [one.address for one in parsed.cc],
        "subject": parsed.subject,
        "date": _moment(parsed.date),
        "message_id": parsed.message_id,
        "text": _text(parsed),
        "html": parsed.html is not None,
        "attachments": [
            {"name": part.name, "type": part.type, "size": len(part.content), "sha256": part.sha256}
            for part in parsed.parts
            if part.is_attachment
        ],
        "defects": list(parsed.defects),
    }


def _verdict(assessed: Assessment) -> dict[str, object]:
    judgement = assessed.judgement
    return {
        "trust": {
            "level": str(assessed.trust.level),
            "reason": str(assessed.trust.reason),
            "evidence": _evidence(assessed.trust.evidence),
        },
        "permission": str(assessed.permission),
        "decision": {
            "action": str(judgement.action),
            "verdict": str(judgement.verdict),
            "rule": str(judgement.rule),
        },
        "executable_text": assessed.executable_text,
        "loop": {
            "answer": assessed.loop is None,
            "reason": str(assessed.loop) if assessed.loop else None,
        },
    }


def _evidence(evidence: TrustEvidence) -> dict[str, object]:
    return {
        "signer": evidence.signer,
        "signed_at": _moment(evidence.signed_at),
        "hash": evidence.hash,
        "status": list(evidence.status),
        "provider_headers": str(evidence.provider_headers),
        "notes": list(evidence.notes),
    }


def _text(parsed: ParsedMessage) -> str | None:
    """The body's text; null where the message has no text and no HTML part at all."""
    has_body = any(part.is_text or part.is_html for part in parsed.parts)
    return parsed.text if has_body else None


def _moment(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _viewpoint(email: str | None, known: Identity | None, own: frozenset[str]) -> Viewpoint:
    """As this identity sees it; `own` are further addresses of ours."""
    if known is not None:
        return Viewpoint(
            identity_id=known.pk,
            email=known.email,
            handle=known.handle,
            binding=known.recipient_binding == Identity.Binding.REQUIRED,
            own_addresses=own | {known.email},
        )
    named = frozenset({email} if email else ())
    return Viewpoint(None, email, None, email is not None, own | named)


def _given_book(contacts: Sequence[str], pins: Sequence[str]) -> ContactBook:
    """The address book of `--contact ADDRESS=rwx` and `--pin ADDRESS=KEYFILE`."""
    exact: dict[str, ContactEntry] = {}
    patterns: list[ContactEntry] = []
    for number, argument in enumerate(contacts):
        entry = _entry(number, argument)
        if entry.is_pattern:
            patterns.append(entry)
        else:
            exact[entry.address] = entry
    patterns.sort(key=lambda entry: (-len(entry.address), entry.id))
    return ContactBook(exact, tuple(patterns), tuple(_pin(argument) for argument in pins))


def _entry(number: int, argument: str) -> ContactEntry:
    address, _, rights = argument.rpartition("=")
    try:
        rwx = Rwx.parse(rights)
    except ValueError as error:
        raise InvalidInput(f"{argument!r}: {error}", field="--contact") from error
    address = normalise(address, field="--contact")
    is_pattern = selectors.is_pattern(address)
    if is_pattern:
        selectors.check_pattern(address)
        if rwx.write or rwx.execute:
            raise InvalidInput(f"the pattern {address!r} may hold r-- only", field="--contact")
    else:
        address = normalise_exact(address, field="--contact")
    return ContactEntry(number, "", address, is_pattern, frozenset(), {_GIVEN: rwx})


def _pin(argument: str) -> Pin:
    at = argument.find("@")
    split = argument.find("=", at) if at >= 0 else -1
    if split < 0:
        raise InvalidInput(f"{argument!r} is not of the form ADDRESS=KEYFILE", field="--pin")
    address = normalise_exact(argument[:split], field="--pin")
    if selectors.is_pattern(address):
        raise InvalidInput(f"a key is pinned to one address, not to {address!r}", field="--pin")
    path = Path(argument[split + 1 :])
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"the key file {path} cannot be read: {error}", field="--pin") from error
    fingerprint, binary = _key(content)
    return Pin(frozenset({address}), fingerprint, binary, address)


def _key(content: bytes) -> tuple[str, bytes]:
    """The key's primary fingerprint and bytes; without GnuPG they are read from its packets."""
    try:
        key = openpgp.read_key(content)
    except OpenPGPUnavailable:
        binary = packets.dearmor(content)
        return packets.key_fingerprints(binary)[0], binary
    return key.fingerprint, key.binary


def has_database() -> bool:
    """Whether there is anything to ask; a missing or empty SQLite file stays as it is."""
    name = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or ":memory:" in name or "mode=memory" in name:
        return True
    file = Path(name)
    return file.exists() and file.stat().st_size > 0


def _stored(email: str | None, *, whole: bool) -> _Stored:
    """What the database says; nothing where it cannot be asked, which is tried once.

    `whole` asks for more than the identity: the book, our own addresses, what a restore stamped.
    """
    try:
        if not has_database():
            return _Stored()
        known = selectors.identity_by_email(email) if email else selectors.default_identity()
        if not whole:
            return _Stored(known)
        return _Stored(
            identity=known,
            book=selectors.contact_book(),
            own_addresses=admission.own_addresses(),
            not_before=selectors.execute_not_before(),
        )
    except (Error, OSError):
        return _Stored()
