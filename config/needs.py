"""*Needs you*: one queue of everything that waits on the operator, oldest first.

Each source is one bounded query, whatever the size of the tables. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from django.db import connection as database
from django.db.models import Model, OuterRef, QuerySet, Subquery
from django.db.models.functions import Now
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from approvals.models import Approval, Connection, Effect, Hold
from approvals.sentences import hold_reason_sentence, reason_sentence
from config import work_needs
from config.need import ROWS_PER_SOURCE, Need, Source, counting
from guards.fronts.console import may_view
from guards.models import PinnedKey
from mail import selectors as mail_selectors
from mail.models import Account, Message, Outbound
from mail.sentences import rule_in_short
from pipelines.models import Command, Pipeline

#: Held mail older than this is still in the messages' list, but no longer asks for anybody.
HELD_MAIL_ASKS_FOR = timedelta(days=14)
#: An admitted message that no worker has taken for this long is stuck.
STUCK_AFTER = timedelta(minutes=10)
#: A key that expires within this time asks to be replaced.
KEY_WARNING = timedelta(days=30)


def held_replies() -> QuerySet[Hold]:
    """Drafts that wait for a person."""
    waiting = Hold.objects.filter(state=Hold.State.WAITING, subject_type="mail.outbound")
    return waiting.order_by("since")


def held_mail() -> QuerySet[Message]:
    """Mail that was held and that nobody has looked into or left as it is yet."""
    recent = Now() - HELD_MAIL_ASKS_FOR
    return Message.objects.filter(
        verdict="hold", revealed_at=None, set_aside_at=None, received_at__gte=recent
    ).order_by("received_at")


def stuck_mail() -> QuerySet[Message]:
    """Admitted mail that no pipeline takes: no worker runs, or it cannot be looked at again."""
    return Message.objects.filter(
        execution=Message.Execution.DUE, received_at__lt=Now() - STUCK_AFTER
    ).order_by("received_at")


def interrupted_pipelines() -> QuerySet[Pipeline]:
    """Work that a crash stopped."""
    return Pipeline.objects.filter(status=Pipeline.Status.INTERRUPTED).order_by("created_at")


def unknown_effects() -> QuerySet[Effect]:
    """Acts whose outcome nobody knows and nobody has acknowledged."""
    return Effect.objects.filter(phase=Effect.Phase.UNKNOWN, acknowledged_at=None).order_by(
        "created_at"
    )


def failing_accounts() -> QuerySet[Account]:
    """Mailboxes that cannot be read."""
    return Account.objects.filter(state=Account.State.FAILING).order_by("name")


def lost_connections() -> QuerySet[Connection]:
    """Credentials that the provider no longer accepts, or that are not what they were."""
    lost = Connection.objects.filter(state=Connection.State.NEEDS_RECONNECT)
    return lost.filter(account_type="mail.account").order_by("created_at")


def unsigned_commands() -> QuerySet[Command]:
    """Commands that will not run as they are."""
    return Command.objects.exclude(signature_state=Command.SignatureState.OK).order_by("name")


def expiring_keys() -> QuerySet[PinnedKey]:
    """Pinned keys that have expired or soon will."""
    return PinnedKey.objects.filter(removed_at=None, expires_at__lt=Now() + KEY_WARNING).order_by(
        "expires_at"
    )


def counts(request: HttpRequest) -> Mapping[str, int]:
    """How many of each wait that this person may see: one statement, once per request."""
    known: Mapping[str, int] | None = getattr(request, "_needs_counts", None)
    if known is None:
        known = _counted(tuple(_visible(request)))
        request._needs_counts = known  # type: ignore[attr-defined]
    return known


def queue(request: HttpRequest) -> list[Need]:
    """All of it that this person may see, oldest first."""
    visible = set(_visible(request))
    found = [need for kind, make, rows in _SOURCES if kind in visible for need in rows(make())]
    return sorted(found, key=lambda need: need.since)


def _visible(request: HttpRequest) -> Iterator[str]:
    """The kinds whose rows this person may see."""
    return (kind for kind, model in _models().items() if may_view(request, model))


def _counted(kinds: tuple[str, ...]) -> Mapping[str, int]:
    if not kinds:
        return {}
    statement, parameters = _counting(kinds)
    with database.cursor() as cursor:
        cursor.execute(statement, parameters)
        return dict(zip(kinds, cursor.fetchone(), strict=True))


@cache
def _counting(kinds: tuple[str, ...]) -> tuple[str, list[Any]]:
    """The statement for these kinds, put together once: that takes longer than to ask it."""
    return counting(make() for kind, make, _ in _SOURCES if kind in kinds)


@cache
def _models() -> Mapping[str, type[Model]]:
    return {kind: make().model for kind, make, _ in _SOURCES}


def _reply_rows(query: QuerySet[Hold]) -> Iterator[Need]:
    open_approval = Approval.objects.filter(hold=OuterRef("pk"), state=Approval.State.PENDING)
    draft = Outbound.objects.filter(hold=OuterRef("pk"))
    rows = query.annotate(
        open_approval=Subquery(open_approval.values("pk")[:1]),
        subject=Subquery(draft.values("subject")[:1]),
        recipients=Subquery(draft.values("to")[:1]),
    )
    for hold in rows[:ROWS_PER_SOURCE]:
        recipients = ", ".join(hold.recipients or []) or "somebody"
        title = f"Reply to {recipients}: {hold.subject}" if hold.subject else str(hold)
        if hold.open_approval:
            url, act = (
                reverse("admin:approvals_approval_change", args=[hold.open_approval]),
                "Review",
            )
        else:
            url, act = reverse("admin:approvals_hold_open", args=[hold.pk]), "Open for review"
        yield Need(
            kind="held-reply",
            label="reply held",
            icon="front_hand",
            tone="warn",
            since=hold.since,
            title=title,
            cause=f"{hold_reason_sentence(hold.reason)} Asked for by {hold.requested_by}.",
            act=act,
            url=url,
            post=not hold.open_approval,
        )


def _mail_rows(query: QuerySet[Message]) -> Iterator[Need]:
    rows = list(query.select_related("account")[:ROWS_PER_SOURCE])
    readable = mail_selectors.shown(rows)
    for message in rows:
        title = f"From {message.sender or 'nobody in particular'} to {message.account.name}"
        yield Need(
            kind="held-mail",
            label="mail held",
            icon="mark_email_unread",
            tone="bad" if message.trust_level == "untrusted" else "warn",
            since=message.received_at,
            title=f"{title}: {message.subject}" if message.pk in readable else title,
            cause=rule_in_short(message.rule, message.trust_reason),
            act="See why",
            url=reverse("admin:mail_message_change", args=[message.pk]),
        )


def _stuck_rows(query: QuerySet[Message]) -> Iterator[Need]:
    for message in query.select_related("account")[:ROWS_PER_SOURCE]:
        yield Need(
            kind="stuck-mail",
            label="mail stuck",
            icon="hourglass_disabled",
            tone="bad",
            since=message.received_at,
            title=f"From {message.sender} to {message.account}: admitted, and not begun",
            cause="No worker runs, its raw bytes cannot be read, or gpg cannot be asked.",
            act="Look",
            url=reverse("admin:mail_message_change", args=[message.pk]),
        )


def _pipeline_rows(query: QuerySet[Pipeline]) -> Iterator[Need]:
    for pipeline in query[:ROWS_PER_SOURCE]:
        yield Need(
            kind="interrupted-pipeline",
            label="interrupted",
            icon="power_off",
            tone="bad",
            since=pipeline.finished_at or pipeline.created_at,
            title=f"Work for {pipeline.requester} stopped half-way",
            cause=pipeline.error or "Its worker died; nothing is repeated by itself.",
            act="Look",
            url=reverse("admin:pipelines_pipeline_change", args=[pipeline.pk]),
        )


def _effect_rows(query: QuerySet[Effect]) -> Iterator[Need]:
    draft = Outbound.objects.filter(hold__approvals__effect=OuterRef("pk"))
    rows = query.annotate(recipients=Subquery(draft.values("to")[:1]))
    for effect in rows[:ROWS_PER_SOURCE]:
        recipients = ", ".join(effect.recipients or [])
        what = f"A reply to {recipients}" if recipients else "A message"
        why = reason_sentence(effect.reason) or f"{effect.reason or 'No answer came back'}."
        yield Need(
            kind="unknown-effect",
            label="unknown",
            icon="help",
            tone="bad",
            since=effect.contact_marked_at or effect.created_at,
            title=f"{what} may have left, or may not",
            cause=f"{why} It is never sent again by itself.",
            act="Read, look again, acknowledge",
            url=reverse("admin:approvals_effect_change", args=[effect.pk]),
        )


def _account_rows(query: QuerySet[Account]) -> Iterator[Need]:
    for account in query[:ROWS_PER_SOURCE]:
        yield Need(
            kind="failing-account",
            label="account",
            icon="cloud_off",
            tone="bad",
            since=account.last_success_at or account.created_at,
            title=f"{account.name} has failed {account.failures} times",
            cause=account.last_error or "No reason was given.",
            act="Check",
            url=reverse("admin:mail_account_change", args=[account.pk]),
        )


def _connection_rows(query: QuerySet[Connection]) -> Iterator[Need]:
    found = list(query[:ROWS_PER_SOURCE])
    names = dict(
        Account.objects.filter(pk__in=[one.account_id for one in found]).values_list("pk", "name")
    )
    for connection in found:
        name = names.get(int(connection.account_id), "an account that is gone")
        why = reason_sentence(connection.reason) or f"{connection.reason or 'No reason was given'}."
        page = reverse("admin:mail_account_change", args=[connection.account_id])
        use = connection.get_use_display().lower()
        yield Need(
            kind="lost-connection",
            label="connection",
            icon="link_off",
            tone="bad",
            since=connection.verified_at or connection.created_at,
            title=f"Connect {name} again: its {use} connection is lost",
            cause=f"{why} Nothing is asked through it until you connect it anew.",
            act="Connect again",
            url=f"{page}#cs-connections",
        )


def _command_rows(query: QuerySet[Command]) -> Iterator[Need]:
    for command in query[:ROWS_PER_SOURCE]:
        state = command.get_signature_state_display()
        yield Need(
            kind="unsigned-command",
            label="command",
            icon="draw",
            tone="warn",
            since=command.updated_at,
            title=f"{command.name} does not run: signature {state.lower()}",
            cause=command.signature_detail or "Only what the owner has signed runs.",
            act="Sign",
            url=reverse("admin:pipelines_command_change", args=[command.pk]),
        )


def _key_rows(query: QuerySet[PinnedKey]) -> Iterator[Need]:
    now = timezone.now()
    for key in query.select_related("contact")[:ROWS_PER_SOURCE]:
        assert key.expires_at is not None  # noqa: S101 - the query asks for it
        gone = key.expires_at <= now
        yield Need(
            kind="expiring-key",
            label="key",
            icon="key_off" if gone else "key",
            tone="bad" if gone else "warn",
            since=key.expires_at - KEY_WARNING,
            title=f"The key of {key.contact} {'has expired' if gone else 'expires soon'}",
            cause=f"On {key.expires_at:%d %B %Y}. After that nothing this contact signs counts.",
            act="Replace",
            url=reverse("admin:guards_pinnedkey_change", args=[key.pk]),
        )


_SOURCES: tuple[Source, ...] = (
    ("held-reply", held_replies, _reply_rows),
    ("held-mail", held_mail, _mail_rows),
    ("stuck-mail", stuck_mail, _stuck_rows),
    *work_needs.SOURCES,
    ("interrupted-pipeline", interrupted_pipelines, _pipeline_rows),
    ("unknown-effect", unknown_effects, _effect_rows),
    ("failing-account", failing_accounts, _account_rows),
    ("lost-connection", lost_connections, _connection_rows),
    ("unsigned-command", unsigned_commands, _command_rows),
    ("expiring-key", expiring_keys, _key_rows),
)
