"""The rows of new messages, written in bulk inside ingest's one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.db.models import F
from django.utils import timezone

from guards import queue
from guards.services import decisions
from guards.types import SYSTEM, Asker, Judgement, Rwx, Subject, TrustEvidence, TrustVerdict
from mail.mime import PARSER_VERSION
from mail.models import Account, MailedAnswer, Message, Part, Recipient, TrustRecord
from mail.services.preparing import Prepared
from mail.services.threads import Threader
from mail.signals import message_admitted, messages_stored
from mail.types import ParsedMessage
from teams.services.events import append_event

#: Characters of a message's text that its row keeps for reading; the raw bytes keep all.
TEXT_LIMIT = 500_000


def write(*, account: Account, folder: str, prepared: Sequence[Prepared]) -> list[Message]:
    """Store new messages with recipients, parts, verdicts, decisions and events.

    Inside the storing transaction: what another pass stored meanwhile is left out by its digest.
    """
    known = set(
        Message.objects.filter(
            account=account, sha256__in=[one.sha256 for one in prepared]
        ).values_list("sha256", flat=True)
    )
    fresh = [one for one in prepared if one.sha256 not in known]
    if not fresh:
        return []
    number = _allocate_numbers(account, len(fresh))
    threader = Threader(account)
    messages = Message.objects.bulk_create(
        [_message(account, number + offset, one, threader) for offset, one in enumerate(fresh)]
    )
    pairs = list(zip(fresh, messages, strict=True))
    Recipient.objects.bulk_create([row for one, message in pairs for row in _to(one, message)])
    Part.objects.bulk_create([row for one, message in pairs for row in _parts(one, message)])
    TrustRecord.objects.bulk_create([_verdict(one, message) for one, message in pairs])
    _note_answers(pairs)
    messages_stored.send(sender=Message, messages=messages)
    for one, message in pairs:
        _decide(account, one, message)
    _announce(account, folder, pairs)
    return messages


def storable(text: str | None, limit: int) -> str:
    """Text that both databases take: no NUL, no lone surrogates, not longer than the column."""
    cleaned = (text or "").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return cleaned.encode("utf-8", "replace").decode("utf-8")[:limit]


def evidence_as_json(evidence: TrustEvidence) -> dict[str, Any]:
    """Evidence as a row keeps it: ISO times, lists, storable text."""
    stored = asdict(evidence)
    signed_at = evidence.signed_at
    stored["signed_at"] = signed_at.isoformat() if signed_at else None
    stored["provider_headers"] = str(evidence.provider_headers)
    stored["status"] = [storable(word, 200) for word in evidence.status]
    stored["notes"] = [storable(note, 500) for note in evidence.notes]
    stored["signer"] = storable(evidence.signer, 64) or None
    return stored


def trust_record(message: Message, verdict: TrustVerdict, cause: str) -> TrustRecord:
    """One more verdict about a message, not yet saved."""
    return TrustRecord(
        message=message,
        version=verdict.version,
        level=str(verdict.level),
        reason=str(verdict.reason),
        evidence=evidence_as_json(verdict.evidence),
        cause=cause,
    )


def subject_of(message: Message) -> Subject:
    """How decisions and events name a message."""
    return Subject("mail.message", str(message.pk))


def record(
    *, message: Message, judgement: Judgement, identity_id: int | None, asker: Asker = SYSTEM
) -> None:
    """One Decision about a stored message."""
    decisions.record_decision(
        judgement=judgement,
        asker=asker,
        subject=subject_of(message),
        identity_id=identity_id,
        sender=message.sender,
        permission=Rwx.parse(message.permission),
    )


def _allocate_numbers(account: Account, count: int) -> int:
    """The first of so many new per-account numbers."""
    Account.objects.filter(pk=account.pk).update(next_number=F("next_number") + count)
    account.refresh_from_db(fields=["next_number"])
    return account.next_number - count


def _message(account: Account, number: int, one: Prepared, threader: Threader) -> Message:
    parsed, assessment, fetched = one.parsed, one.assessment, one.fetched
    trust, judgement = assessment.trust, assessment.judgement
    message_id = storable(parsed.message_id, 998)
    references = [storable(known, 998) for known in parsed.references]
    answers = [*references, *(storable(known, 998) for known in parsed.in_reply_to)]
    subject = storable(parsed.subject, 10_000)
    return Message(
        account=account,
        number=number,
        thread_id=threader.thread_for(
            message_id=message_id,
            answers=answers,
            digest=one.sha256,
            subject=subject[:500],
            at=one.received_at,
        ),
        sha256=one.sha256,
        size=max(fetched.size, len(fetched.raw)),
        received_at=timezone.now(),
        internal_date=fetched.internal_date,
        sender=storable(parsed.sender.address if parsed.sender else "", 254),
        sender_name=storable(parsed.sender.name if parsed.sender else "", 500),
        subject=subject,
        date=parsed.date,
        message_id=message_id,
        in_reply_to=answers[-1] if parsed.in_reply_to else "",
        references=references[-100:],
        text=storable(parsed.text, TEXT_LIMIT),
        has_html=parsed.html is not None,
        defects=[storable(defect, 100) for defect in parsed.defects],
        quarantine=storable(one.quarantine, 64),
        truncated=fetched.truncated,
        seen="\\Seen" in fetched.flags,
        loop_reason=str(assessment.loop or ""),
        trust_level=str(trust.level),
        trust_reason=str(trust.reason),
        trust_evidence=evidence_as_json(trust.evidence),
        permission=str(assessment.permission),
        action=str(judgement.action),
        verdict=str(judgement.verdict),
        rule=str(judgement.rule),
        execution=Message.Execution.DUE if one.executes else Message.Execution.NONE,
        replay_key=assessment.replay_key if one.executes else "",
        parser_version=PARSER_VERSION,
    )


def _to(one: Prepared, message: Message) -> list[Recipient]:
    parsed: ParsedMessage = one.parsed
    listed = (
        (Recipient.Kind.TO, parsed.to),
        (Recipient.Kind.CC, parsed.cc),
        (Recipient.Kind.REPLY_TO, parsed.reply_to),
    )
    return [
        Recipient(
            message=message,
            kind=kind,
            name=storable(address.name, 500),
            address=storable(address.address, 254),
        )
        for kind, addresses in listed
        for address in addresses
    ]


def _parts(one: Prepared, message: Message) -> list[Part]:
    return [
        Part(
            message=message,
            path=part.path[:255],
            type=storable(part.type, 127),
            name=storable(part.name, 255),
            size=len(part.content),
            sha256=part.sha256,
            disposition=storable(part.disposition, 16),
            is_attachment=part.is_attachment,
            is_text=part.is_text,
            is_html=part.is_html,
            is_signed=part.is_signed,
        )
        for part in one.parsed.parts
    ]


def _note_answers(pairs: Sequence[tuple[Prepared, Message]]) -> None:
    """Mail that speaks of an order is judged as such as soon as this has committed."""
    answers = MailedAnswer.objects.bulk_create(
        [
            MailedAnswer(message=message, first_pass=one.first_pass)
            for one, message in pairs
            if one.assessment.is_answer
        ]
    )
    for answer in answers:
        queue.enqueue("mail.tasks.answer_mail", answer.pk)


def _verdict(one: Prepared, message: Message) -> TrustRecord:
    return trust_record(message, one.assessment.trust, "ingest")


def _decide(account: Account, one: Prepared, message: Message) -> None:
    record(
        message=message,
        judgement=one.assessment.judgement,
        identity_id=account.identity_id,
    )
    if message.execution == Message.Execution.DUE:
        message_admitted.send(sender=Message, message=message)


def _announce(account: Account, folder: str, pairs: Sequence[tuple[Prepared, Message]]) -> None:
    """One event per message; mail of a first pass shares one: an old mailbox stays quiet."""
    quiet = [message for one, message in pairs if one.first_pass]
    if quiet:
        append_event(
            kind="mail.first-pass",
            subject=Subject("mail.account", str(account.pk)),
            actor=str(SYSTEM),
            facts={
                "account": account.name,
                "folder": folder,
                "messages": len(quiet),
                "quarantined": sum(1 for message in quiet if message.quarantine),
            },
        )
    for one, message in pairs:
        if one.first_pass:
            continue
        _event(
            account, message, "mail.received", {"trust": message.trust_level, "rule": message.rule}
        )
        if message.quarantine:
            _event(account, message, "mail.quarantined", {"reason": message.quarantine})


def _event(account: Account, message: Message, kind: str, facts: dict[str, object]) -> None:
    append_event(
        kind=kind,
        subject=subject_of(message),
        actor=str(SYSTEM),
        facts={"account": account.name, "number": message.number, **facts},
    )
