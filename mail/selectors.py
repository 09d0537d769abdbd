"""Reads of mail: the raw bytes, and what they are worth by the pins and permissions of now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from approvals.models import Hold
from guards import openpgp
from guards.exceptions import NotFound
from guards.models import ApiToken
from guards.selectors import contact_book, execute_not_before, identities_for
from guards.services import statements
from guards.services.decisions import decide_read
from guards.services.statements import Result, Statement
from guards.types import Action, Rwx, SignedStructure, Verdict
from mail import admission, explaining
from mail.assessment import Assessment
from mail.gateways import blobs
from mail.gateways.google.base import MessageReference
from mail.mime import PARSER_VERSION
from mail.models import (
    Account,
    GmailMessage,
    MailedAnswer,
    Message,
    NoticeItem,
    Outbound,
)
from mail.owner_channel import Channel, channel
from mail.types import Attachment, ParsedMessage


@dataclass(frozen=True, slots=True)
class JudgedFile:
    """A message file as it was judged; `identity_id` is the identity that it was judged for."""

    sender: str
    assessment: Assessment
    identity_id: int | None


def raw(message: Message) -> bytes:
    """The message exactly as it was received; RawMissing where the store lost it."""
    return blobs.get(message.sha256)


def gmail_reference(message: Message) -> MessageReference | None:
    """Gmail's own ids of a message that was read through Gmail; None for any other.

    They say where to look: what is there now has to be read again before anything rests on it.
    """
    for place in message.locations.order_by("-pk"):
        known = GmailMessage.objects.filter(
            account_id=place.account_id,
            folder=place.folder,
            uidvalidity=place.uidvalidity,
            uid=place.uid,
        ).first()
        if known is not None:
            return MessageReference(known.gmail_id, known.thread_id)
    return None


def parsed(message: Message) -> ParsedMessage:
    """The message parsed again from its raw bytes."""
    return admission.parse_for(raw(message), message.account, admission.own_addresses())


def attachments(message: Message) -> list[Attachment]:
    """What a message brought along, cut from its raw bytes again, in its order.

    Of a signed message only what its signature covers. RawMissing where the store lost the bytes.
    """
    again = parsed(message)
    is_signed = again.facts.structure is SignedStructure.SIGNED
    return [
        Attachment(index, part.path, part.name or "", part.type, part.content)
        for index, part in enumerate(again.parts, start=1)
        if part.is_attachment and (part.is_signed or not is_signed)
    ]


def has_no_attachments(message_id: int) -> bool:
    """Whether this very parser has put the message's parts on record, and no attachment.

    Good for leaving a parse out, never for content. Without any part on record, or with parts that
    an earlier parser saw, nobody knows.
    """
    return bool(without_attachments([message_id]))


def without_attachments(message_ids: Collection[int]) -> set[int]:
    """Those of several messages of which that is known."""
    if not message_ids:
        return set()
    (found,) = statements.execute([parts_of(message_ids)])
    return without_attachments_in(found)


def parts_of(message_ids: Collection[int]) -> Statement:
    """What `without_attachments` asks, to go with other statements; there is at least one."""
    places = ", ".join(["%s"] * len(message_ids))
    return Statement(  # asked of each pipeline twice, and built by the ORM slow
        "SELECT part.message_id, part.is_attachment"  # noqa: S608 - places only
        " FROM mail_part part JOIN mail_message message ON message.id = part.message_id"
        f" WHERE part.message_id IN ({places}) AND message.parser_version = %s",
        [*message_ids, PARSER_VERSION],
    )


def without_attachments_in(found: Result) -> set[int]:
    """What it answers, of what came of that statement."""
    brings = {message_id for message_id, is_attachment in found.rows if is_attachment}
    return {message_id for message_id, _ in found.rows} - brings


def reassess(
    message: Message,
    *,
    now: datetime | None = None,
    replayed: Callable[[str], bool] | None = None,
) -> Assessment:
    """Trust, permission and judgement derived again from the raw bytes, with what counts now.

    The first pass plays no part: who asks has a reason to. `replayed` is the caller's, since only
    he knows whether the message's own key is in the ledger.
    """
    around = surroundings(message.account, now=now)
    again = admission.parse(raw(message), around)
    return admission.judge(
        again,
        around,
        received_at=message.internal_date or message.received_at,
        partial=message.truncated or bool(message.quarantine) or again.quarantine is not None,
        replayed=replayed,
    )


def judged_file(raw: bytes, *, setting: explaining.Setting) -> JudgedFile:
    """What a message that is stored nowhere is worth, as `explain` tells it."""
    parsed, assessed = explaining.judge(raw, setting=setting)
    sender = parsed.sender.address.lower() if parsed.sender is not None else ""
    return JudgedFile(sender, assessed, setting.viewpoint.identity_id)


#: What `judged_file` rests on: the options of `explain`.
file_setting = explaining.build_setting
has_database = explaining.has_database


def surroundings(account: Account, *, now: datetime | None = None) -> admission.Surroundings:
    """What an assessment of this account's mail rests on, as of now."""
    return admission.Surroundings(
        account=account,
        book=contact_book(),
        own_addresses=admission.own_addresses(),
        verifier=openpgp.verifier(),
        now=now or timezone.now(),
        not_before=execute_not_before(),
    )


def messages_for(token: ApiToken) -> QuerySet[Message]:
    """The messages that a token may list: those of its identity's accounts, or all."""
    return Message.objects.select_related("account__identity").filter(
        account__identity__in=identities_for(token)
    )


@dataclass(frozen=True, slots=True)
class Readable:
    """A message, what its sender may ask now, and whether it may be read here."""

    message: Message
    permission: Rwx
    readable: bool


def readable(messages: Iterable[Message]) -> list[Readable]:
    """Each message with the permission of now; what an operator released may be read."""
    book = contact_book()
    made = []
    for message in messages:
        sender = message.sender or None
        permission = book.rwx(message.account.identity_id, sender)
        judged = decide_read(action=Action.READ, sender=sender, permission=permission)
        allowed = judged.verdict is Verdict.ALLOW or message.released_at is not None
        made.append(Readable(message, permission, allowed))
    return made


def shown(messages: Iterable[Message]) -> frozenset[int]:
    """Ids of those whose subject and text a person sees: readable now, or revealed by a person."""
    return frozenset(
        row.message.pk
        for row in readable(messages)
        if row.readable or row.message.revealed_at is not None
    )


def covered_senders(messages: QuerySet[Message]) -> Q:
    """Which of these came from senders who may not be read any more, as a condition on messages."""
    book = contact_book()
    pairs = messages.order_by().values_list("account__identity_id", "sender").distinct()
    senders: dict[int, list[str]] = defaultdict(list)
    for identity_id, sender in pairs:
        if not book.rwx(identity_id, sender or None).read:
            senders[identity_id].append(sender)
    covered = Q(pk__in=[])
    for identity_id, names in senders.items():
        covered |= Q(account__identity_id=identity_id, sender__in=names, revealed_at=None)
    return covered


def message_for(token: ApiToken, message_id: int) -> Readable:
    """One message that a token may look at; NotFound for any other."""
    message = messages_for(token).filter(pk=message_id).first()
    if message is None:
        raise NotFound(f"there is no message {message_id} here")
    return readable([message])[0]


def outbound_for(token: ApiToken) -> QuerySet[Outbound]:
    """What was written for the accounts of a token's identity, or all."""
    rows = Outbound.objects.select_related("account", "in_reply_to__account")
    return rows.prefetch_related("files").filter(account__identity__in=identities_for(token))


def reply_for(token: ApiToken, reply_id: UUID) -> Outbound:
    """One reply that a token may look at, with its hold and its effect; NotFound for any other."""
    rows = outbound_for(token).exclude(in_reply_to=None).select_related("hold", "effect")
    found = rows.prefetch_related("effect__observations").filter(pk=reply_id).first()
    if found is None:
        raise NotFound(f"there is no reply {reply_id} here", field="reply_id")
    return found


def answers_to_the_covered(rows: Iterable[Outbound]) -> frozenset[object]:
    """Ids of replies whose subject repeats one that may not be read here."""
    written = [(row.pk, row.in_reply_to) for row in rows]
    known = readable(message for _, message in written if message is not None)
    hidden = {row.message.pk for row in known if not row.readable}
    return frozenset(pk for pk, message in written if message and message.pk in hidden)


def owner_channel() -> Channel:
    """How the owner is told what waits, at this moment. Runs GnuPG, outside any transaction."""
    return channel()


def notices_of(hold: Hold) -> list[NoticeItem]:
    """The notices in which the owner was told of a draft, newest first."""
    rows = NoticeItem.objects.filter(hold=hold).select_related("notice__outbound", "approval")
    return list(rows.order_by("-pk"))


def answer_of(message: Message) -> MailedAnswer | None:
    """What a mail that speaks of an order did; None for every other mail."""
    return MailedAnswer.objects.filter(message=message).first()


def due_messages() -> QuerySet[Message]:
    """Messages that were admitted and that no pipeline has taken, oldest first."""
    return Message.objects.filter(execution=Message.Execution.DUE).order_by("pk")


def outbound_of(origin_type: str, origin_id: str) -> Outbound | None:
    """The one outgoing message of an origin."""
    return Outbound.objects.filter(origin_type=origin_type, origin_id=origin_id).first()
