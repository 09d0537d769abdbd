"""Read-only recovery of a reply whose answer was lost: one strict match, or still unknown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from approvals.clock import database_now
from approvals.exceptions import ContactRefused
from approvals.models import Effect, Job, Observation
from approvals.services import goals, recovery, roots
from tests.mail.gmail.world import OPERATOR, GmailWorld, caps, last_grant, spent
from tests.servers.google import GoogleServer

pytestmark = pytest.mark.django_db

FOUND, STILL_UNKNOWN = "verified_sent_observation", "unknown_observation"


@pytest.fixture
def lost(world: GmailWorld, google_server: GoogleServer) -> Effect:
    """A reply that Google filed, and whose answer never came."""
    effect = world.approve()
    google_server.fault("send.reset-after", times=1)
    after = world.dispatch(effect)
    assert after.phase == Effect.Phase.UNKNOWN
    world.google.contacts.clear()
    return after


def look(world: GmailWorld, effect: Effect, **changes: Any) -> Job:
    values: dict[str, Any] = {"by": OPERATOR, "root": world.root, "request_id": uuid4(), **changes}
    return recovery.run(job_id=recovery.look_again(effect_id=effect.pk, **values).pk)


def _everything(effect: Effect) -> dict[str, object]:
    fresh = Effect.objects.get(pk=effect.pk)
    return {f.attname: getattr(fresh, f.attname) for f in fresh._meta.concrete_fields}


def test_a_look_finds_it_and_changes_nothing_but_the_record(world: GmailWorld, lost: Effect):
    before = _everything(lost)
    job = look(world, lost)
    assert (job.outcome, job.reason) == (FOUND, "sent-copy-matches")
    after = _everything(lost)
    assert after.pop("revision") == before.pop("revision") + 1
    assert after == before
    assert Observation.objects.get(effect=lost).outcome == FOUND
    assert world.contacts() == {
        "token read": 1,
        "userinfo read": 1,
        "profile read": 1,
        "list read": 1,
        "message read": 1,
    }
    grant = last_grant("recover")
    assert sum(caps(grant).values()) == 9
    assert spent(grant) == {"refresh": 1, "userinfo": 1, "profile": 1, "list": 1, "get": 1}


@pytest.mark.one_database
def test_recovery_after_an_old_deadline_and_with_a_closed_goal(world: GmailWorld, lost: Effect):
    """The same live session, a goal and a grant of its own; the original stays as it is."""
    goals.close(lost.goal)
    Job.objects.filter(pk=lost.job_id).update(deadline=database_now() - timedelta(hours=1))
    assert look(world, lost).outcome == FOUND
    lost.refresh_from_db()
    assert lost.phase == Effect.Phase.UNKNOWN


@pytest.mark.one_database
def test_nothing_found_proves_no_absence(world: GmailWorld, lost: Effect):
    world.person.mailbox.hidden |= set(world.person.mailbox.messages)
    job = look(world, lost)
    assert (job.outcome, job.reason) == (STILL_UNKNOWN, "not_found")
    world.person.mailbox.hidden.clear()  # the search has caught up
    assert look(world, lost).outcome == FOUND
    assert world.google.posts == 0


@pytest.mark.one_database
def test_a_replaced_message_id_is_not_found(world: GmailWorld, google_server: GoogleServer):
    effect = world.approve()
    google_server.fault("send.replaces-message-id", times=1)
    assert world.dispatch(effect).reason == "message_id_replaced"
    assert look(world, effect).reason == "not_found"


def _again(world: GmailWorld, changed: Callable[[bytes], bytes], times: int = 1) -> None:
    [sent] = world.person.mailbox.sent()
    for _ in range(times):
        world.person.mailbox.add(changed(sent.raw), thread_id=sent.thread_id, labels=["SENT"])


@pytest.mark.one_database
def test_recovery_result_bounds_more_than_one_match_is_unknown(
    world: GmailWorld, lost: Effect, subtests: pytest.Subtests
):
    for times, reason, gets in (
        (1, "several_candidates", 2),
        (4, "several_candidates", 5),
        (5, "too_many_candidates", 0),
    ):
        with subtests.test(times=times), world.undone(lost) as effect:
            _again(world, lambda raw: raw, times)
            job = look(world, effect)
            assert (job.outcome, job.reason) == (STILL_UNKNOWN, reason)
            assert world.contacts()["message read"] == gets


@pytest.mark.one_database
def test_exactly_one_strict_match_among_others_is_found(world: GmailWorld, lost: Effect):
    _again(world, lambda raw: raw.replace(b"Subject: ", b"Subject: Fwd: "))
    assert look(world, lost).outcome == FOUND


@pytest.mark.one_database
def test_a_copy_that_differs_is_unknown(world: GmailWorld, lost: Effect, subtests: pytest.Subtests):
    for old, new, reason in (
        (b"Subject: Re: ", b"Subject: Fwd: ", "subject_differs"),
        (b"To: bob", b"Cc: eve@example.org\r\nTo: bob", "extra_recipient"),
        (b"From: agent@", b"From: eve@", "from_differs"),
        (b"\r\n\r\nV", b"\r\n\r\nW", "body_differs"),
    ):
        with subtests.test(reason), world.undone(lost) as effect:
            [sent] = world.person.mailbox.sent()
            assert old in sent.raw
            sent.raw = sent.raw.replace(old, new)
            job = look(world, effect)
            assert (job.outcome, job.reason) == (STILL_UNKNOWN, reason)


#: What Google answers, and the reason that is told.
UNREADABLE = {
    "list.next-page": "more_pages",
    "list.status-500": "http-500",
    "message.truncated": "connection-lost",
    "message.not-in-sent": "not_in_sent",
    "message.other-thread": "thread_differs",
    "token.scope-omitted": "scope_omitted",
    "token.scope-extra": "scope_extra",
    "token.invalid-grant": "connection_unavailable",
    "userinfo.other-subject": "account_changed",
    "userinfo.unverified": "email_not_verified",
    "profile.other-mailbox": "mailbox_differs",
}
#: Told apart at the gateway (tests/mail/test_google_faults.py); from here on all the same.
AT_THE_GATEWAY = {
    "list.not-json": "bad-answer",
    "list.reset-before": "connection-lost",
    "message.status-404": "http-404",
}


@pytest.mark.one_database
@pytest.mark.parametrize(
    "faults", [UNREADABLE, pytest.param(AT_THE_GATEWAY, marks=pytest.mark.soak)]
)
def test_whatever_cannot_be_read_is_unknown(
    world: GmailWorld,
    google_server: GoogleServer,
    lost: Effect,
    faults: dict[str, str],
    subtests: pytest.Subtests,
):
    for fault, reason in faults.items():
        with subtests.test(fault), world.undone(lost) as effect:
            google_server.fault(fault)
            job = look(world, effect)
            assert job.reason == reason
            assert job.outcome in (STILL_UNKNOWN, "lost")
            assert not any("send" in name for name in world.contacts())
            assert Effect.objects.get(pk=effect.pk).phase == Effect.Phase.UNKNOWN


@pytest.mark.one_database
def test_no_credential_that_sends_is_used(world: GmailWorld, lost: Effect):
    world.issued["send"].revoked = True
    assert look(world, lost).outcome == FOUND


BLOCKED: dict[str, tuple[Callable[[GmailWorld, Effect], object], str]] = {
    "session over": (
        lambda world, _: roots.end(root_id=world.root.pk, by=OPERATOR),
        "session_unavailable",
    ),
    "session revoked": (
        lambda world, _: roots.revoke(root_id=world.root.pk, by=OPERATOR),
        "authority_revoked",
    ),
    "goal deleted": (lambda _, effect: goals.delete(effect.goal), "goal_deleted"),
    "read connection revoked": (
        lambda world, _: world.revoke("read"),
        "connection_unavailable",
    ),
}


@pytest.mark.one_database
def test_recovery_authorization_what_forbids_a_look_has_its_own_reason_and_contacts_nobody(
    world: GmailWorld, lost: Effect, subtests: pytest.Subtests
):
    for name, (change, reason) in BLOCKED.items():
        with subtests.test(name), world.undone(lost) as effect:
            change(world, effect)
            with pytest.raises(ContactRefused) as refused:
                look(world, effect)
            assert refused.value.reason == reason
            assert world.google.contacts == []


@pytest.mark.one_database
def test_a_new_login_of_the_same_operator_is_another_session(world: GmailWorld, lost: Effect):
    roots.end(root_id=world.root.pk, by=OPERATOR)
    with pytest.raises(ContactRefused) as refused:
        look(world, lost, root=world.login())
    assert refused.value.reason == "session_unavailable"
    assert world.google.contacts == []


def test_the_same_wish_is_one_look(world: GmailWorld, lost: Effect):
    wish = uuid4()
    first = look(world, lost, request_id=wish)
    counted = len(world.google.contacts)
    assert look(world, lost, request_id=wish).pk == first.pk
    assert len(world.google.contacts) == counted
