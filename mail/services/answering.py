"""Which mail may be answered, and how often: the loop guard and the caps (invariant 22)."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from guards.models import Identity
from guards.types import Action, Judgement, Rule, Subject, Verdict
from mail import admission
from mail.exceptions import ReplyRefused
from mail.gmail import connected
from mail.models import Message, Outbound
from mail.types import LoopReason

#: An origin of this type says that the work goes on. It stands beside the answer, never for it: its
#: effect has no source, so that it cannot be in the answer's way.
ACKNOWLEDGEMENT = "pipelines.acknowledgement"
#: An origin of this type tells the owner what waits; his address comes from the settings.
NOTICE = "mail.owner_notice"
#: The origin of what an agent drafts by its own call.
CALL = "guards.call"
#: An origin of this type answers its own request by right, without `w` (guards.md *Deciding*).
PIPELINES = ("pipelines.pipeline", "pipelines.stage", "pipelines.resumption", ACKNOWLEDGEMENT)


def refuse_unless_answerable(message: Message, origin: Subject) -> None:
    """ReplyRefused, with the rule, for a message that this origin must not answer."""
    if not message.sender:
        raise ReplyRefused("there is no single sender to answer", rule=LoopReason.NO_IDENTITY)
    if message.sender.lower() in admission.own_addresses():
        raise ReplyRefused("our own mail is not answered", rule=LoopReason.OWN_ADDRESS)
    if not (message.account.smtp_host or connected.pair(message.account_id)):
        raise ReplyRefused(
            f"account {message.account.name} has no SMTP host: set one to answer from it",
            rule="no-smtp",
        )
    if origin.type not in PIPELINES:
        return
    if message.loop_reason:
        raise ReplyRefused(
            f"mail of this kind is not answered automatically: {message.loop_reason}",
            rule=message.loop_reason,
        )


def needs_a_person(outbound: Outbound) -> bool:
    """By the reply policy. What tells the owner that something waits never waits itself."""
    approves = outbound.account.identity.reply_policy == Identity.ReplyPolicy.APPROVE
    return approves and outbound.origin_type != NOTICE


def by_right(outbound: Outbound) -> Judgement | None:
    """The judgement of what leaves without `w`: a pipeline's answer to its own requester, and a
    notice to the owner. None for everything else.
    """
    if outbound.origin_type == NOTICE:
        told = {"notice": outbound.origin_id}
        return Judgement(Action.SEND, Verdict.ALLOW, Rule.OWNER_NOTICE, told)
    if outbound.origin_type in PIPELINES:
        evidence = {"answers": outbound.in_reply_to_id, "executes": outbound.executes}
        return Judgement(Action.REPLY, Verdict.ALLOW, Rule.EXECUTE_PERMITTED, evidence)
    return None


def refuse_above_daily_caps(message: Message) -> None:
    """What did no work is answered rarely: per sender, and per domain for senders that change.

    Call it in the transaction that writes the draft. The caps count over all identities, so all of
    them are locked: of two answers that meet, the later one sees the earlier.
    """
    list(Identity.objects.select_for_update(no_key=True).order_by("pk").values_list("pk"))
    recent = Outbound.objects.filter(
        automatic=True, executes=False, created_at__gte=timezone.now() - timedelta(days=1)
    ).exclude(status__in=(Outbound.Status.CANCELLED, Outbound.Status.REJECTED))
    domain = message.sender.rpartition("@")[2]
    to_sender = recent.filter(in_reply_to__sender__iexact=message.sender)
    to_domain = recent.filter(in_reply_to__sender__iendswith=f"@{domain}")
    if (
        to_sender.count() >= settings.AUTO_REPLIES_PER_SENDER_PER_DAY
        or to_domain.count() >= settings.AUTO_REPLIES_PER_DOMAIN_PER_DAY
    ):
        raise ReplyRefused(
            "this sender or its domain was answered automatically today", rule=LoopReason.RATE_LIMIT
        )


def lock_drafts_of(identity: Identity) -> None:
    """From here to the end of the transaction nobody else writes a draft of this agent."""
    Identity.objects.select_for_update(no_key=True).get(pk=identity.pk)


def refuse_above_open_drafts(identity: Identity) -> None:
    """An agent has so many drafts before people at once, and then waits for their answers.

    Call it behind `lock_drafts_of`, in the transaction that has the draft held. What was refused is
    stored nowhere: the same call may be made again.
    """
    most = int(settings.OPEN_DRAFTS_PER_AGENT)
    waiting = Outbound.objects.filter(
        account__identity=identity, origin_type=CALL, status=Outbound.Status.HELD
    )
    if waiting.count() >= most:
        raise ReplyRefused(
            f"{most} drafts of {identity.handle} wait for a person: draft again when one of them "
            "is answered (OPEN_DRAFTS_PER_AGENT)",
            rule="open-drafts",
        )


def is_hour_full(identity: Identity) -> bool:
    """Whether the identity has sent as many automatic replies within an hour as it may."""
    return _sent_within_an_hour(identity) >= int(settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR)


def is_hour_half_full(identity: Identity) -> bool:
    """Whether what is left of the hour's replies is for answers alone."""
    return 2 * _sent_within_an_hour(identity) >= int(settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR)


def _sent_within_an_hour(identity: Identity) -> int:
    since = timezone.now() - timedelta(hours=1)
    sent = Outbound.objects.filter(
        account__identity=identity, automatic=True, submitted_at__gte=since
    ).exclude(status__in=(Outbound.Status.QUEUED, Outbound.Status.HELD))
    return sent.count()
