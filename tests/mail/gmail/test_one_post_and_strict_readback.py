"""One POST and a strict read-back: whatever Google answers, it is asked to send once."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from approvals.exceptions import ContactRefused
from approvals.models import Effect
from approvals.services import effects
from guards.exceptions import CountersignError
from mail.services import outbound
from tests.mail.gmail.world import GmailWorld
from tests.servers.google import GoogleServer

pytestmark = pytest.mark.django_db

#: What becomes of the POST, the reason that is told, and whether something was filed as sent.
POSTS = {
    "status-400": "http-400",
    "status-401": "http-401",
    "status-403": "http-403",
    "status-404": "http-404",
    "status-429": "http-429",
    "status-500": "http-500",
    "status-502": "http-502",
    "status-503": "http-503",
    "status-500-after": "http-500",
    "rate-limit": "http-403",
    "redirect": "http-307",
    "reset-before": "connection-lost",
    "reset-after": "connection-lost",
    "truncated": "connection-lost",
    "not-json": "bad-answer",
    "garbage": "bad-answer",
    "empty": "bad-answer",
    "doubled": "bad-answer",
    "too-large": "answer-too-large",
    "no-id": "bad-answer",
    "no-thread-answer": "bad-answer",
    "other-thread": "thread_differs",
    "wrong-thread-answer": "thread_differs",
    "replaces-message-id": "message_id_replaced",
    "not-in-sent": "not_in_sent",
    "vanishes": "http-404",
    "changes-body": "body_differs",
    "changes-subject": "subject_differs",
    "changes-from": "from_differs",
    "changes-to": "to_differs",
    "adds-cc": "extra_recipient",
    "adds-subject": "header_duplicated",
    "changes-in-reply-to": "in_reply_to_differs",
}
#: Taken or not, the answer lost; what Google answers is the same on every database.
ON_BOTH = ("status-500", "reset-after", "not-in-sent")
#: Told apart there (tests/mail/test_google_faults.py) or by the fields of the copy
#: (tests/mail/gmail/test_strict_readback.py); from here on all the same.
AT_THE_GATEWAY = (
    *("status-401", "status-404", "status-429", "status-502", "status-503"),
    *("truncated", "not-json", "empty", "doubled", "no-thread-answer"),
    *("status-400", "rate-limit", "no-id", "wrong-thread-answer"),
    *("changes-from", "changes-to", "adds-subject", "changes-in-reply-to"),
)
OF_GMAIL = [one for one in POSTS if one not in (*ON_BOTH, *AT_THE_GATEWAY)]
#: What becomes of the read-back after a POST that was taken.
COPIES = {
    "status-500": "http-500",
    "status-404": "http-404",
    "reset-after": "connection-lost",
    "truncated": "connection-lost",
    "not-json": "bad-answer",
    "too-large": "answer-too-large",
    "other-thread": "thread_differs",
    "other-message": "bad-answer",
    "no-raw": "bad-answer",
    "raw-plain-base64": "bad-answer",
    "raw-stray-bits": "bad-answer",
    "raw-empty": "bad-answer",
    "not-in-sent": "not_in_sent",
}
SOAKED_COPIES = {"truncated", "not-json", "raw-plain-base64", "raw-stray-bits", "raw-empty"}


@pytest.mark.invariant(19)
@pytest.mark.fault("send-01", "send-03")
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(ON_BOTH, id="taken or not"),
        pytest.param(OF_GMAIL, id="of Gmail alone", marks=pytest.mark.one_database),
        pytest.param(AT_THE_GATEWAY, id="told apart at the gateway", marks=pytest.mark.soak),
    ],
)
def test_whatever_google_answers_it_is_unknown_with_its_reason_and_never_sent_again(
    world: GmailWorld,
    google_server: GoogleServer,
    faults: Collection[str],
    subtests: pytest.Subtests,
):
    approved = world.approve()
    for fault in faults:
        with subtests.test(fault), world.undone(approved) as effect:
            google_server.fault(f"send.{fault}")
            after = world.dispatch(effect)
            assert after.phase == Effect.Phase.UNKNOWN
            assert after.reason == POSTS[fault]
            assert world.google.posts == 1
            google_server.heal()
            world.dispatch(effect)
            effects.reconcile()
            effects.enqueue_due()
            world.outbound.refresh_from_db()
            assert world.outbound.status == "unknown"
            with pytest.raises(CountersignError):
                world.open(world.outbound)
            assert world.google.posts == 1


@pytest.mark.one_database
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(COPIES.keys() - SOAKED_COPIES, id="each way to end"),
        pytest.param(SOAKED_COPIES, id="told apart at the gateway", marks=pytest.mark.soak),
    ],
)
def test_a_copy_that_proves_nothing_leaves_it_unknown(
    world: GmailWorld,
    google_server: GoogleServer,
    faults: Collection[str],
    subtests: pytest.Subtests,
):
    approved = world.approve()
    for fault in sorted(faults):
        with subtests.test(fault), world.undone(approved) as effect:
            google_server.fault(f"message.{fault}")
            after = world.dispatch(effect)
            assert (after.phase, after.reason) == (Effect.Phase.UNKNOWN, COPIES[fault])
            assert after.detail["posted"] is True
            assert world.google.posts == 1
            assert world.contacts()["message read"] == 1


@pytest.mark.fault("send-03")
@pytest.mark.one_database
def test_an_answer_that_takes_fifteen_seconds_is_not_waited_for_and_not_asked_for_again(
    world: GmailWorld, google_server: GoogleServer
):
    google_server.slow_seconds = 15.0
    world.client._seconds = 1.0
    effect = world.approve()
    google_server.fault("send.slow")
    after = world.dispatch(effect)
    assert (after.phase, after.reason) == (Effect.Phase.UNKNOWN, "timed-out")
    world.dispatch(effect)
    assert world.google.posts == 1


@pytest.mark.one_database
def test_a_google_that_files_it_twice_was_asked_once(
    world: GmailWorld, google_server: GoogleServer
):
    effect = world.approve()
    google_server.fault("send.twice")
    after = world.dispatch(effect)
    assert after.phase == Effect.Phase.VERIFIED
    assert world.google.posts == 1


@pytest.mark.one_database
def test_a_copy_with_added_trace_headers_is_the_message(world: GmailWorld):
    world.person.mailbox.traces += b"X-Google-Smtp-Source: 1\r\nReturn-Path: <agent@gmail.test>\r\n"
    assert world.send().phase == Effect.Phase.VERIFIED


@pytest.mark.one_database
def test_a_taken_post_is_no_success_by_itself(world: GmailWorld, google_server: GoogleServer):
    effect = world.approve()
    google_server.fault("message.hang")
    world.client._seconds = 1.0
    after = world.dispatch(effect)
    assert (after.phase, after.reason) == (Effect.Phase.UNKNOWN, "timed-out")


def test_the_same_source_is_not_answered_again_while_it_is_unknown(
    world: GmailWorld, google_server: GoogleServer
):
    letter = world.letter()
    effect = world.approve(world.open(world.draft("One.\n", letter)))
    google_server.fault("send.reset-after")
    world.dispatch(effect)
    google_server.heal()
    again = world.open(world.draft("Two.\n", letter))
    with pytest.raises(CountersignError) as refused:
        world.approve(again)
    assert refused.value.code == "effect-outstanding"
    assert world.google.posts == 1


@pytest.mark.one_database
def test_an_account_without_its_pair_does_not_reply_through_gmail(world: GmailWorld):
    held = world.draft()
    world.revoke("send")
    with pytest.raises((CountersignError, ContactRefused)) as refused:
        world.open(held)
    assert refused.value.rule == "connection_unavailable"
    assert world.google.contacts == []


@pytest.mark.one_database
def test_the_way_out_is_chosen_by_what_the_account_is_connected_to(world: GmailWorld):
    through_gmail = world.draft()
    assert through_gmail.hold.kind == outbound.GMAIL
    world.account.smtp_host = "127.0.0.1"
    world.account.save()
    world.revoke("read")
    assert world.draft().hold.kind == outbound.KIND


@pytest.mark.one_database
def test_an_identity_that_signs_cannot_use_it(world: GmailWorld):
    held = world.draft()
    world.account.sign_outbound = True
    world.account.save()
    with pytest.raises(CountersignError) as refused:
        world.open(held)
    assert (refused.value.rule, refused.value.field) == ("must_sign", "sign_outbound")
    assert world.google.contacts == []


@pytest.mark.one_database
def test_a_reply_that_no_person_answers_is_refused(world: GmailWorld):
    world.account.identity.reply_policy = "auto"
    world.account.identity.save()
    refused = world.draft()
    assert refused.status == "failed"
    assert world.google.contacts == []
