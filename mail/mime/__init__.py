"""mail.mime: what the raw bytes of a message say. `parse` never raises, for any bytes.

A walker of our own, bounded and without recursion by input depth; the standard library decodes
leaves only (docs/decisions/0002-mime-parser.md). Defects are listed in `mail.mime.defects`.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass, replace
from datetime import datetime

from guards.types import SignedStructure, TransportFacts
from mail import loops
from mail.mime import (
    addresses,
    bodies,
    dates,
    facts,
    html,
    identifiers,
    limits,
    results,
    tree,
    words,
)
from mail.mime.bodies import Body
from mail.mime.defects import QUARANTINE, Defect, Defects
from mail.mime.headers import Headers
from mail.mime.tree import Node
from mail.types import MimeNode, ParsedMessage, Provider

__all__ = ["PARSER_VERSION", "parse", "unreadable"]

#: Stored with each message: a newer parser re-reads the raw bytes under a higher number.
PARSER_VERSION = 1

_log = logging.getLogger(__name__)

_MBOX_LINE = re.compile(rb"From (?![ \t]*:)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NO_BODY = Body(parts=(), text=None, html=None, signed_text=None)


@dataclass(frozen=True, slots=True)
class _Account:
    """What the account that received a message says about it."""

    loopback_bridge: bool
    authserv_id: str
    own_addresses: frozenset[str]


def parse(
    raw: bytes,
    *,
    provider: Provider = Provider.GENERIC,
    loopback: bool = False,
    own_addresses: frozenset[str] = frozenset(),
    authserv_id: str = "",
) -> ParsedMessage:
    """Read a message. Any bytes give a ParsedMessage; what is wrong is in its `defects`.

    `loopback` says that the account's host is literally a loopback address; `own_addresses` are
    those of our identities, for the loop guard; `authserv_id` is the account's own, for evidence.
    """
    account = _Account(provider is Provider.PROTON_BRIDGE and loopback, authserv_id, own_addresses)
    try:
        return _parse(raw, account)
    except Exception:  # noqa: BLE001 - the last line of "no poison": store the bytes, say so, go on
        _log.exception("the parser failed on a message of %d bytes", len(raw))
        return unreadable(raw)


def _parse(raw: bytes, account: _Account) -> ParsedMessage:
    defects: Defects = set()
    source, start = _prepare(raw, defects)
    root = tree.build(source, start, defects)
    quarantined = not QUARANTINE.isdisjoint(defects)
    found = facts.structure(root)
    if quarantined and found is SignedStructure.SIGNED:
        found = SignedStructure.MALFORMED
    signed = root.children[0] if found is SignedStructure.SIGNED else None
    body = _NO_BODY if quarantined else bodies.read(source, root, signed, defects)
    if found is SignedStructure.NONE:
        found = facts.inline(body.text or "")
    return _assemble(raw, source, root, body, found, account, defects)


def _assemble(
    raw: bytes,
    source: bytes,
    root: Node,
    body: Body,
    found: SignedStructure,
    account: _Account,
    defects: Defects,
) -> ParsedMessage:
    headers = root.headers
    sender, from_all = addresses.identity(headers, defects)
    if Defect.HEADER_TOO_LARGE in defects:
        sender = None  # a second From may stand beyond the bound
    notes = results.notes(headers, authserv_id=account.authserv_id, sender=sender)
    signed = root.children[0] if found is SignedStructure.SIGNED else None
    message = ParsedMessage(
        sha256=hashlib.sha256(raw).hexdigest(),
        size=len(raw),
        sender=sender,
        from_all=from_all,
        to=addresses.addresses(headers, "to", defects),
        cc=addresses.addresses(headers, "cc", defects),
        reply_to=addresses.addresses(headers, "reply-to", defects),
        subject=_subject(headers, defects),
        date=_date(headers, defects),
        message_id=identifiers.message_id(headers, defects),
        in_reply_to=identifiers.referenced(headers, "in-reply-to", defects),
        references=identifiers.referenced(headers, "references", defects),
        text=_text(body, defects),
        html=body.html,
        parts=body.parts,
        structure=bodies.structure(root),
        facts=facts.extract(
            source,
            root,
            sender=sender,
            found=found,
            loopback_bridge=account.loopback_bridge,
            notes=notes,
        ),
        signed_text=body.signed_text,
        signed_to=facts.protected(signed).to,
        loop=None,
        headers=_shown(headers),
        quarantine=_quarantine(defects),
    )
    message = replace(message, defects=tuple(sorted(str(defect) for defect in defects)))
    return replace(message, loop=loops.reason(message, own_addresses=account.own_addresses))


def _prepare(raw: bytes, defects: Defects) -> tuple[bytes, int]:
    """The bytes to read, with LF or CRLF line ends, and where the header begins."""
    source = raw
    if b"\r" in raw and b"\n" not in raw:
        defects.add(Defect.MESSAGE_CR_ONLY)
        source = raw.replace(b"\r", b"\n")
    start = 0
    if source.startswith(_BYTE_ORDER_MARK):
        defects.add(Defect.MESSAGE_BYTE_ORDER_MARK)
        start = len(_BYTE_ORDER_MARK)
    if _MBOX_LINE.match(source, start):
        defects.add(Defect.MESSAGE_MBOX_LINE)
        start = source.find(b"\n", start) + 1 or len(source)
    if start >= len(source):
        defects.add(Defect.MESSAGE_EMPTY)
    elif source[start : start + 2].startswith((b"\n", b"\r\n")):
        defects.add(Defect.HEADER_MISSING)
    return source, start


def _subject(headers: Headers, defects: Defects) -> str:
    value = headers.first("subject", defects)
    return words.decode(value or b"", defects)[: limits.MAX_SUBJECT_CHARS]


def _date(headers: Headers, defects: Defects) -> datetime | None:
    value = headers.first("date", defects)
    if value is None:
        return None
    moment = dates.parse(words.decode(value, defects))
    if moment is None:
        defects.add(Defect.HEADER_BAD_DATE)
    return moment


def _text(body: Body, defects: Defects) -> str:
    if body.text is not None:
        return body.text
    return html.to_text(body.html, defects) if body.html else ""


def _shown(headers: Headers) -> tuple[tuple[str, str], ...]:
    scratch: Defects = set()
    return tuple((field.name, words.decode(field.value, scratch)) for field in headers.fields)


def _quarantine(defects: Defects) -> str | None:
    crossed = sorted(str(defect) for defect in defects & QUARANTINE)
    return crossed[0] if crossed else None


def unreadable(raw: bytes, *, quarantine: str = Defect.MESSAGE_UNFORESEEN) -> ParsedMessage:
    """What stands for a message that broke whoever read it: its bytes, and no claim or identity."""
    return ParsedMessage(
        sha256=hashlib.sha256(raw).hexdigest(),
        size=len(raw),
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
        structure=MimeNode("1", "application/octet-stream", len(raw)),
        facts=TransportFacts(sender=None),
        signed_text=None,
        signed_to=(),
        loop=loops.LoopReason.NO_IDENTITY,
        headers=(),
        defects=(str(Defect.MESSAGE_UNFORESEEN),),
        quarantine=str(quarantine),
    )
