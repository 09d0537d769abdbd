"""Whatever changes between the yes and the contact: nothing is posted, and the field is named."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.db.utils import DatabaseError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from approvals import freezing, registry, signals
from approvals.clock import database_now
from approvals.exceptions import Blocked, ContactRefused
from approvals.models import Approval, Artifact, Connection, Consent, Effect, Goal, Root
from approvals.services import consents, goals, roots
from approvals.types import Act
from guards.models import Identity
from mail.models import Account, Message, Outbound
from tests.mail.gmail.world import OPERATOR, GmailWorld, last_goal, last_grant
from tests.mail.google import CountingGrant
from tests.servers.google import GoogleServer

pytestmark = pytest.mark.django_db


def _update(model: type, **values: object) -> Callable[[GmailWorld, Effect], None]:
    def change(world: GmailWorld, effect: Effect) -> None:
        rows = {
            Outbound: lambda: Outbound.objects.filter(pk=world.outbound.pk),
            Account: lambda: Account.objects.filter(pk=world.account.pk),
            Identity: lambda: Identity.objects.filter(pk=world.account.identity_id),
            Message: lambda: Message.objects.filter(pk=world.outbound.in_reply_to_id),
            Root: lambda: Root.objects.filter(pk=world.root.pk),
            Goal: lambda: Goal.objects.filter(pk=effect.goal_id),
            Consent: lambda: Consent.objects.filter(pk=effect.consent_id),
            Approval: lambda: Approval.objects.filter(pk=effect.approval_id),
        }[model]()
        rows.update(**values)

    return change


def _connection(use: str, **values: object) -> Callable[[GmailWorld, Effect], None]:
    def change(world: GmailWorld, effect: Effect) -> None:
        Connection.objects.filter(pk=world.connections[use].pk).update(**values)

    return change


#: What changed, and the reason and field that say so.
ROWS: dict[str, tuple[Callable[[GmailWorld, Effect], None], set[tuple[str, str]]]] = {
    "body": (_update(Outbound, text="They are bad.\n"), {("drifted", "body")}),
    "one character of the body": (
        _update(Outbound, text="They are fine!\n"),
        {("drifted", "body")},
    ),
    "to": (_update(Outbound, to=["eve@example.org"]), {("drifted", "to")}),
    "a second recipient": (
        _update(Outbound, to=["bob@example.org", "eve@example.org"]),
        {("drifted", "to")},
    ),
    "subject": (_update(Outbound, subject="Re: Other"), {("drifted", "subject")}),
    "message id": (_update(Outbound, message_id="other@gmail.test"), {("drifted", "message_id")}),
    "withdrawn": (_update(Outbound, status="cancelled"), {("drifted", "status")}),
    "account": (_update(Account, revision=F("revision") + 1), {("drifted", "account")}),
    "account off": (_update(Account, state="disabled"), {("drifted", "account_active")}),
    "signing": (_update(Account, sign_outbound=True), {("drifted", "sign_outbound")}),
    "from": (_update(Account, from_address="eve@gmail.test"), {("drifted", "from")}),
    "identity off": (_update(Identity, is_active=False), {("drifted", "identity_active")}),
    "source": (_update(Message, sha256="f" * 64), {("drifted", "source")}),
    "source sender": (_update(Message, sender="eve@example.org"), {("drifted", "source")}),
    "read connection": (
        _connection("read", revision=F("revision") + 1),
        {("drifted", "read_connection"), ("connection_changed", "connection")},
    ),
    "send connection": (
        _connection("send", revision=F("revision") + 1),
        {("drifted", "send_connection"), ("connection_changed", "connection")},
    ),
    "another subject": (
        _connection("send", subject="1", revision=F("revision") + 1),
        {("connection_unavailable", "connection")},
    ),
    "another address": (
        _connection("read", address="eve@gmail.test", revision=F("revision") + 1),
        {("connection_unavailable", "connection")},
    ),
    "connection revoked": (
        lambda world, _: world.revoke("send"),
        {("connection_unavailable", "connection")},
    ),
    "session over": (
        lambda world, _: roots.end(root_id=world.root.pk, by=OPERATOR),
        {("session_unavailable", "root")},
    ),
    "session revoked": (
        lambda world, _: roots.revoke(root_id=world.root.pk, by=OPERATOR),
        {("authority_revoked", "root")},
    ),
    "session idle": (
        lambda world, effect: _update(Root, idle_until=database_now())(world, effect),
        {("session_unavailable", "root")},
    ),
    "goal closed": (lambda _, effect: goals.close(effect.goal), {("goal_closed", "goal")}),
    "goal deleted": (lambda _, effect: goals.delete(effect.goal), {("goal_deleted", "goal")}),
    "goal revision": (_update(Goal, revision=F("revision") + 1), {("goal_changed", "goal")}),
    "consent revoked": (
        lambda _, effect: consents.revoke(consent_id=effect.consent_id, by=OPERATOR),
        {("authority_revoked", "consent")},
    ),
}
#: Of a field that another row has changed already.
SAME_FIELDS = ("one character of the body", "a second recipient", "source sender")


def _posts_nothing(world: GmailWorld, effect: Effect) -> Effect:
    after = world.dispatch(effect)
    assert after.phase in (Effect.Phase.CANCELLED, Effect.Phase.FAILED)
    assert after.contact_marked_at is None
    assert world.google.posts == 0
    world.dispatch(effect)
    assert world.google.posts == 0
    return after


@pytest.mark.one_database
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([one for one in ROWS if one not in SAME_FIELDS], id="each field"),
        pytest.param(SAME_FIELDS, id="the same fields", marks=pytest.mark.soak),
    ],
)
def test_a_row_that_changed_is_named_and_nothing_is_posted(
    world: GmailWorld, rows: Collection[str], subtests: pytest.Subtests
):
    approved = world.approve()
    for name in rows:
        change, named = ROWS[name]
        with subtests.test(name), world.undone(approved) as effect:
            change(world, effect)
            after = _posts_nothing(world, effect)
            assert (after.reason, after.detail["field"]) in named


@pytest.mark.one_database
def test_nothing_changed_and_it_is_posted(world: GmailWorld):
    assert world.dispatch(world.approve()).phase == Effect.Phase.VERIFIED
    assert world.google.posts == 1


FROZEN: dict[str, Callable[[Effect], object]] = {
    "expiry": lambda effect: Approval.objects.filter(pk=effect.approval_id).update(
        expires_at=database_now() + timedelta(hours=1)
    ),
    "approval digest": lambda effect: Approval.objects.filter(pk=effect.approval_id).update(
        digest="0" * 64
    ),
    "effect digest": lambda effect: Effect.objects.filter(pk=effect.pk).update(digest="0" * 64),
    "consent expiry": lambda effect: Consent.objects.filter(pk=effect.consent_id).update(
        expires_at=database_now() + timedelta(minutes=1)
    ),
    "consent caps": lambda effect: effect.consent.budgets.update(cap=F("cap") + 1),
    "consent connections": lambda effect: Consent.objects.filter(pk=effect.consent_id).update(
        connections=[]
    ),
    "account": lambda effect: Effect.objects.filter(pk=effect.pk).update(account_id="999"),
    "source": lambda effect: Effect.objects.filter(pk=effect.pk).update(source_id="999"),
    "subject": lambda effect: Effect.objects.filter(pk=effect.pk).update(
        subject_id="00000000-0000-0000-0000-000000000000"
    ),
    "goal": lambda effect: Effect.objects.filter(pk=effect.pk).update(goal=None),
    "root": lambda effect: Effect.objects.filter(pk=effect.pk).update(root=None),
    "payload": lambda effect: _flip(effect.payload),
    "facts": lambda effect: _flip(effect.facts),
}


def _flip(artifact: Artifact) -> None:
    content = bytes(artifact.ciphertext)
    flipped = content[:60] + bytes([content[60] ^ 1]) + content[61:]
    Artifact.objects.filter(pk=artifact.pk).update(ciphertext=flipped)


def test_what_was_frozen_cannot_be_changed_or_posts_nothing(
    world: GmailWorld, subtests: pytest.Subtests
):
    approved = world.approve()
    for name, change in FROZEN.items():
        with subtests.test(name), world.undone(approved) as effect:
            try:
                with transaction.atomic():
                    change(effect)
            except DatabaseError:
                continue  # the database itself refuses it
            _posts_nothing(world, effect)


#: What changed at Gmail: the field that is named, and what is written instead of what.
AT_GMAIL: dict[str, tuple[bytes, bytes]] = {
    "subject": (b"Subject: Quarterly", b"Subject: Yearly"),
    "sender": (b"<bob@", b"<rob@"),
    "reply_to": (b"To: agent", b"Reply-To: eve@example.org\r\nTo: agent"),
    "references": (b"To: agent", b"References: <a@example.org>\r\nTo: agent"),
    "message_id": (b"Message-ID: <letter", b"Message-ID: <other"),
}


@pytest.mark.one_database
def test_what_changed_at_gmail_is_named_and_nothing_is_posted(
    world: GmailWorld, subtests: pytest.Subtests
):
    approved = world.approve()
    for field in ("messages", "revision", *AT_GMAIL):
        with subtests.test(field), world.undone(approved) as effect:
            mailbox, stored = world.person.mailbox, world.stored
            if field == "messages":
                more = b"From: bob@example.org\r\n\r\nMore\r\n"
                mailbox.add(more, thread_id=stored.thread_id)
            elif field == "revision":
                mailbox.label(stored.id, "STARRED")
            else:
                stored.raw = stored.raw.replace(*AT_GMAIL[field])
            after = _posts_nothing(world, effect)
            assert (after.reason, after.detail["field"]) == ("drifted", field)


#: What becomes of the thread, and the reason: one of each, and others that end as one of these.
THREADS = {
    "eleven-messages": "thread_too_long",
    "next-page": "bad-answer",
    "too-large": "answer-too-large",
    "truncated": "connection-lost",
    "status-404": "http-404",
    "redirect": "redirect-refused",
}
MORE_THREADS = {
    "other-thread": "bad-answer",
    "foreign-message": "bad-answer",
    "message-twice": "bad-answer",
    "no-messages": "bad-answer",
    "status-500": "http-500",
    "reset-before": "connection-lost",
}


@pytest.mark.one_database
@pytest.mark.parametrize("faults", [THREADS, pytest.param(MORE_THREADS, marks=pytest.mark.soak)])
def test_a_thread_that_cannot_be_read_whole_ends_it(
    world: GmailWorld,
    google_server: GoogleServer,
    faults: dict[str, str],
    subtests: pytest.Subtests,
):
    approved, draft = world.approve(), world.draft()
    for fault, reason in faults.items():
        with subtests.test(fault), world.undone(approved) as effect:
            google_server.fault(f"thread.{fault}")
            assert _posts_nothing(world, effect).reason == reason
            with pytest.raises(Blocked) as blocked:
                world.open(draft)
            assert blocked.value.reason == reason


@pytest.mark.one_database
def test_a_letter_that_came_between_the_last_look_and_the_contact_changes_nothing(
    world: GmailWorld, google_server: GoogleServer
):
    """The one race that remains: what was approved is sent as it is, never edited."""
    effect = world.approve()
    google_server.fault("thread.grows-after")
    after = world.dispatch(effect)
    assert after.phase == Effect.Phase.VERIFIED
    assert world.google.posts == 1


@pytest.mark.one_database
@given(position=st.integers(0, 10_000), flip=st.integers(1, 255))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_flipped_byte_of_the_request_is_found_before_any_contact(
    world: GmailWorld, position: int, flip: int
):
    kind = registry.act("mail.gmail")
    if not hasattr(world, "frozen"):
        effect = world.approve()
        world.frozen = (effect, *freezing.open_intent(effect))
        world.google.contacts.clear()
    effect, payload, facts = world.frozen
    position %= len(payload)
    other = payload[:position] + bytes([payload[position] ^ flip]) + payload[position + 1 :]
    with pytest.raises(Blocked) as blocked:
        kind.observe(Act(effect.pk, freezing.subject_of(effect), other, facts, CountingGrant()))
    assert blocked.value.field
    assert world.google.contacts == []


@pytest.mark.one_database
def test_the_goal_of_a_review_is_the_one_that_the_effect_keeps(world: GmailWorld):
    effect = world.approve()
    assert effect.goal == last_goal()
    assert effect.authority["goal"] == str(effect.goal_id)


@pytest.mark.one_database
def test_bytes_that_changed_after_the_last_look_are_not_posted(world: GmailWorld):
    kind = registry.act("mail.gmail")
    effect = world.approve()
    payload, facts = freezing.open_intent(effect)

    def act(content: bytes) -> Act:
        return Act(effect.pk, freezing.subject_of(effect), content, facts, CountingGrant())

    kind.observe(act(payload))
    for old, new, reason in (
        (b'"threadId"', b'"threadid"', "thread_id_missing"),
        (b'"threadId":"1', b'"threadId":"2', "thread_id_differs"),
        (b'{"raw":"R', b'{"raw":"S', "mime_not_exact"),
        (b"}", b",}", "request_malformed"),
    ):
        assert old in payload
        ended = kind.contact(act(payload.replace(old, new)))
        assert (ended.outcome, ended.reason) == ("unknown", reason)
        assert ended.detail["posted"] is False
        assert ended.detail["field"]
        assert world.google.posts == 0
    assert kind.contact(act(payload)).outcome == "accepted"  # the control: these are the bytes
    assert world.google.posts == 1


@pytest.mark.one_database
def test_without_the_tokens_of_a_last_look_nothing_is_posted(world: GmailWorld):
    kind = registry.act("mail.gmail")
    effect = world.approve()
    payload, facts = freezing.open_intent(effect)
    act = Act(effect.pk, freezing.subject_of(effect), payload, facts, CountingGrant())
    assert kind.contact(act).reason == "token_gone"
    assert kind.readback(act) is None
    assert world.google.posts == 0


def _age(world: GmailWorld, effect: Effect) -> None:
    registry.act("mail.gmail").freshness = -1.0


#: What ends while a worker sleeps between its mark and the contact, and the reason that remains.
ENDED: dict[str, tuple[Callable[[GmailWorld, Effect], object], str]] = {
    "the session is revoked": (
        lambda world, effect: roots.revoke(root_id=world.root.pk, by=OPERATOR),
        "authority_revoked",
    ),
    "the session is left": (
        lambda world, effect: roots.end(root_id=world.root.pk, by=OPERATOR),
        "session_unavailable",
    ),
    "the grant is revoked": (
        lambda world, effect: consents.revoke(consent_id=effect.consent_id, by=OPERATOR),
        "authority_revoked",
    ),
    "the goal is closed": (lambda world, effect: goals.close(effect.goal), "goal_closed"),
    "the connection is revoked": (
        lambda world, effect: world.revoke("send"),
        "connection_unavailable",
    ),
    "the last look gets old": (_age, "observation_stale"),
    "nothing": (lambda world, effect: None, "sent-copy-matches"),
}
#: What is looked at is one row each; one of them, and none, on both databases.
ENDED_ON_BOTH = ("the grant is revoked", "nothing")


@pytest.mark.invariant(19)
def test_what_ends_between_the_mark_and_the_contact_keeps_it_from_being_made(
    world: GmailWorld, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
):
    kind = registry.act("mail.gmail")
    approved = world.approve()
    for ended in ENDED if connection.vendor == "sqlite" else ENDED_ON_BOTH:
        change, reason = ENDED[ended]
        with (
            subtests.test(ended),
            monkeypatch.context() as changed,
            world.undone(approved) as effect,
        ):
            changed.setattr(kind, "freshness", kind.freshness, raising=False)
            after = _dispatch_and(world, effect, change)
            assert after.reason == reason
            assert (after.phase, world.google.posts) == (
                ("verified", 1) if ended == "nothing" else ("unknown", 0)
            )


def _dispatch_and(
    world: GmailWorld, effect: Effect, change: Callable[[GmailWorld, Effect], object]
) -> Effect:
    def meanwhile(**_: object) -> None:
        change(world, effect)

    signals.contact_claimed.connect(meanwhile)
    try:
        return world.dispatch(effect)
    finally:
        signals.contact_claimed.disconnect(meanwhile)


@pytest.mark.one_database
def test_no_yes_rests_on_a_look_whose_grant_was_revoked(world: GmailWorld):
    """Where none was revoked it is posted: `test_nothing_changed_and_it_is_posted`."""
    approval = world.open()
    consents.revoke(consent_id=last_grant("preview").pk, by=OPERATOR)
    with pytest.raises(ContactRefused) as refused:
        world.approve(approval)
    assert (refused.value.reason, refused.value.field) == ("authority_revoked", "consent")
    assert world.google.posts == 0
