"""Replies: to whom, how often, and what becomes of them."""

from __future__ import annotations

import uuid
from datetime import timedelta
from email import message_from_bytes
from uuid import uuid4

import pytest
from django.utils import timezone

from approvals.models import Effect, Hold
from approvals.registry import NOTHING
from approvals.services import approvals, effects, holds
from approvals.types import Act, ContactOutcome
from guards.exceptions import AlreadyDecided, Conflict, CountersignError
from guards.models import Decision, Identity
from guards.types import SYSTEM, Subject
from mail.adapters import SmtpKind
from mail.exceptions import ReplyRefused
from mail.gateways.base import SendOutcome, SubmissionResult
from mail.listing import REDACTED
from mail.models import Message, Outbound
from mail.services import accounts, outbound, polling
from mail.signals import outbound_changed
from teams.models import Event
from tests.mail.factories import OPERATOR, make_contact, make_mail

pytestmark = pytest.mark.django_db

USER = "agent@agents.test"
UNKNOWN = SubmissionResult(SendOutcome.UNKNOWN, "connection-lost-after-data", final_dot_sent=True)


@pytest.fixture
def ask(account, mail_server):
    """Deliver a mail and give back its row."""
    polling.poll(account_id=account.pk)

    def deliver(**fields):
        mail_server.deliver(USER, make_mail(**fields))
        polling.poll(account_id=account.pk)
        return Message.objects.latest("pk")

    return deliver


def draft(message, *, executes=True, text="The answer.\n", origin=None):
    return outbound.draft_reply(
        message_id=message.pk,
        text=text,
        origin=origin or Subject("pipelines.pipeline", str(uuid.uuid4())),
        executes=executes,
    )


def reply(message, **options):
    return outbound.submit(outbound_id=draft(message, **options).pk, asker=SYSTEM)


def test_an_automatic_reply_leaves_once_and_is_accepted(ask, mail_server):
    message = ask(subject="Report", message_id="root@example.org")
    sent = reply(message)
    assert (sent.status, sent.reason) == ("accepted", "smtp-250")
    (taken,) = mail_server.sent
    assert (taken.envelope_from, taken.recipients) == (USER, ("alice@example.org",))
    parsed = message_from_bytes(taken.payload)
    assert parsed["Subject"] == "Re: Report"
    assert parsed["In-Reply-To"] == "<root@example.org>"
    assert parsed["References"] == "<root@example.org>"
    assert parsed["Auto-Submitted"] == "auto-replied"
    assert parsed["Message-ID"] == f"<{sent.message_id}>"
    assert sent.thread_id == message.thread_id
    assert sent.effect.phase == "accepted"
    assert Decision.objects.filter(action="reply", rule="execute-permitted").count() == 1


@pytest.mark.invariant(24)
def test_each_effect_leads_to_everything_that_allowed_it(account, ask):
    """Message, verdict, permission, approval, digest: from the effect alone, and in the log."""
    make_contact(account.identity, "alice@example.org", "rwx")
    message = ask()
    effect = reply(message).effect
    assert (effect.source_type, effect.source_id) == ("mail.message", str(message.pk))
    approval = effect.approval
    assert approval.digest == effect.digest and len(effect.digest) == 64
    assert (approval.decision.verdict, approval.decision.rule) == ("allow", "execute-permitted")
    verdict = Decision.objects.get(subject_type=effect.source_type, subject_id=effect.source_id)
    assert (verdict.rule, verdict.permission) == (message.rule, "rwx")
    assert message.trust_records.count() == 1
    facts = Event.objects.get(kind="effect.accepted", subject_id=str(effect.pk)).facts
    assert (facts["approval"], facts["digest"]) == (str(approval.pk), effect.digest)
    consented = Event.objects.get(kind="approval.approved", subject_id=str(approval.pk)).facts
    assert consented["decision"] == approval.decision_id


@pytest.mark.one_database
@pytest.mark.fault("W18")
def test_a_reply_goes_to_the_from_and_never_to_reply_to_or_sender(ask, mail_server):
    message = ask(Reply_To="evil@evil.test", Sender="other@evil.test", Return_Path="<x@evil.test>")
    reply(message)
    assert mail_server.sent[0].recipients == ("alice@example.org",)
    assert b"evil.test" not in mail_server.sent[0].payload


@pytest.mark.one_database
@pytest.mark.fault("loops-09")
def test_our_own_addresses_are_no_recipients(ask, mail_server):
    message = ask(to=f"{USER}, bob@example.org", Cc=USER)
    reply(message)
    assert mail_server.sent[0].recipients == ("alice@example.org",)


@pytest.mark.one_database
@pytest.mark.invariant(22)
@pytest.mark.parametrize("sender", [USER, "AGENT@agents.test"])
def test_our_own_mail_is_never_answered(ask, sender):
    with pytest.raises(ReplyRefused) as refused:
        draft(ask(sender=sender))
    assert refused.value.rule == "own-address"


@pytest.mark.one_database
def test_mail_without_one_sender_is_never_answered(ask):
    with pytest.raises(ReplyRefused) as refused:
        draft(ask(sender="undisclosed:;"))
    assert refused.value.rule == "no-identity"


@pytest.mark.one_database
@pytest.mark.invariant(22)
@pytest.mark.parametrize(
    ("header", "rule"),
    [
        ({"Auto_Submitted": "auto-replied"}, "auto-submitted"),
        ({"Precedence": "bulk"}, "bulk"),
        ({"List_Id": "<list.example.org>"}, "list"),
    ],
)
def test_automatic_mail_is_never_answered_automatically(ask, header, rule):
    with pytest.raises(ReplyRefused) as refused:
        draft(ask(**header))
    assert refused.value.rule == rule


@pytest.mark.one_database
@pytest.mark.invariant(22)
@pytest.mark.fault("loops-01", "loops-02")
def test_our_own_message_id_under_another_from_is_never_answered(ask, mail_server):
    sent = reply(ask())
    with pytest.raises(ReplyRefused):
        draft(ask(sender="alias@elsewhere.test", message_id=sent.message_id))


@pytest.mark.one_database
@pytest.mark.invariant(22)
@pytest.mark.fault("loops-03")
def test_one_sender_gets_one_automatic_reply_a_day_unless_something_ran(ask):
    assert reply(ask(), executes=False).status == "accepted"
    with pytest.raises(ReplyRefused) as refused:
        draft(ask(), executes=False)
    assert refused.value.rule == "rate-limit"
    assert reply(ask(), executes=True).status == "accepted"
    Outbound.objects.update(created_at=timezone.now() - timedelta(days=2))
    assert reply(ask(), executes=False).status == "accepted"


@pytest.mark.invariant(22)
@pytest.mark.fault("loops-04")
def test_senders_that_change_within_a_domain_are_capped_together(ask, settings):
    settings.AUTO_REPLIES_PER_DOMAIN_PER_DAY = 2
    for n in range(2):
        reply(ask(sender=f"a{n}@robot.test"), executes=False)
    with pytest.raises(ReplyRefused) as refused:
        draft(ask(sender="a9@robot.test"), executes=False)
    assert refused.value.rule == "rate-limit"
    assert reply(ask(sender="a9@human.test"), executes=False).status == "accepted"


@pytest.mark.one_database
@pytest.mark.invariant(22)
def test_above_the_hourly_cap_a_reply_waits_and_leaves_later(ask, settings, mail_server):
    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 2
    done = [reply(ask()) for _ in range(4)]
    assert [one.status for one in done] == ["accepted", "accepted", "queued", "queued"]
    assert len(mail_server.sent) == 2
    assert outbound.release_queued() == 0
    Outbound.objects.filter(status="accepted").update(
        submitted_at=timezone.now() - timedelta(hours=2)
    )
    assert outbound.release_queued() == 2
    assert len(mail_server.sent) == 4
    assert not Outbound.objects.filter(status="queued").exists()


def test_a_reply_that_another_process_is_sending_is_not_failed_by_this_one(ask, settings, account):
    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 0
    mine, theirs = [reply(ask()) for _ in range(2)]
    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 10

    def meanwhile(outbound, **_):
        if outbound.pk == mine.pk and outbound.status == "accepted":
            Outbound.objects.filter(pk=theirs.pk).update(status="sending")
            Identity.objects.filter(pk=account.identity_id).update(is_active=False)

    outbound_changed.connect(meanwhile)
    try:
        outbound.release_queued()
    finally:
        outbound_changed.disconnect(meanwhile)
    theirs.refresh_from_db()
    assert theirs.status == "sending"


def test_an_origin_has_one_reply_ever_and_a_draft_takes_a_new_text(ask, mail_server):
    message, origin = ask(), Subject("pipelines.pipeline", str(uuid.uuid4()))
    first = draft(message, origin=origin)
    second = draft(message, origin=origin, text="Another.\n", executes=False)
    assert (second.pk, second.text, second.executes) == (first.pk, "Another.\n", False)
    sent = outbound.submit(outbound_id=first.pk, asker=SYSTEM)
    assert draft(message, origin=origin, text="Too late.\n").text == "Another.\n"
    assert outbound.submit(outbound_id=first.pk, asker=SYSTEM).effect_id == sent.effect_id
    assert len(mail_server.sent) == 1


@pytest.mark.invariant(20)
@pytest.mark.fault("send-01", "send-02", "send-04")
def test_unknown_stays_unknown_and_is_never_sent_again(ask, mail_server):
    mail_server.next_result, mail_server.taken_with_next_result = UNKNOWN, True
    sent = reply(ask())
    assert (sent.status, sent.reason) == ("unknown", "connection-lost-after-data")
    outbound.submit(outbound_id=sent.pk, asker=SYSTEM)
    effects.dispatch(effect_id=sent.effect_id)
    effects.reconcile()
    outbound.release_queued()
    outbound.settle_cut_off()
    sent.refresh_from_db()
    assert sent.status == "unknown"
    assert mail_server.submissions == 1
    assert len(mail_server.sent) == 1


@pytest.mark.one_database
def test_a_certain_failure_is_failed_with_its_reason(ask, mail_server):
    mail_server.refused_recipients = {"alice@example.org"}
    sent = reply(ask())
    assert (sent.status, sent.reason) == ("failed", "recipients-refused")
    assert sent.effect.phase == "failed"


@pytest.mark.one_database
def test_what_prevents_the_effect_is_a_failure_without_contact(ask, mail_server, account):
    accounts.update_account(account_id=account.pk, by=OPERATOR, sign_outbound=True)
    sent = reply(ask())
    assert (sent.status, sent.reason) == ("failed", "signing-refused")
    assert mail_server.submissions == 0


@pytest.mark.one_database
def test_a_secret_that_does_not_resolve_is_a_certain_failure(ask, mail_server, account):
    message = ask()
    accounts.update_account(account_id=account.pk, by=OPERATOR, smtp_secret_ref="env:NOT_THERE")
    sent = reply(message)
    assert (sent.status, sent.reason) == ("failed", "secret-unavailable")
    assert mail_server.submissions == 0


@pytest.mark.one_database
@pytest.mark.fault("sister-38")
def test_an_inactive_identity_sends_nothing_and_no_other_speaks_for_it(ask, mail_server, account):
    message = ask()
    Identity.objects.filter(pk=account.identity_id).update(is_active=False)
    sent = reply(message)
    assert (sent.status, sent.reason) == ("failed", "reply-refused")
    assert mail_server.submissions == 0


@pytest.mark.one_database
@pytest.mark.fault("sister-20")
def test_a_signed_reply_leaves_signed_byte_for_byte(ask, mail_server, account, keys):
    Identity.objects.filter(pk=account.identity_id).update(
        openpgp_fingerprint=keys.agent.fingerprint, gpg_home=str(keys.agent.home)
    )
    accounts.update_account(account_id=account.pk, by=OPERATOR, sign_outbound=True)
    assert reply(ask()).status == "accepted"
    parsed = message_from_bytes(mail_server.sent[0].payload)
    assert parsed.get_content_type() == "multipart/signed"
    assert parsed.get_param("protocol") == "application/pgp-signature"


@pytest.mark.one_database
def test_every_move_is_announced_inside_its_transaction(ask):
    moves = []

    def note(outbound, old, **_):
        moves.append((old, outbound.status))

    outbound_changed.connect(note)
    try:
        reply(ask())
    finally:
        outbound_changed.disconnect(note)
    assert moves == [("", "draft"), ("draft", "sending"), ("sending", "accepted")]


def test_a_submission_that_was_cut_off_before_its_effect_is_cancelled(ask, mail_server):
    cut = draft(ask())
    Outbound.objects.filter(pk=cut.pk).update(
        status="sending", submitted_at=timezone.now() - timedelta(hours=1)
    )
    assert outbound.settle_cut_off() == 1
    cut.refresh_from_db()
    assert (cut.status, cut.reason) == ("cancelled", "interrupted")
    assert mail_server.submissions == 0


@pytest.mark.one_database
def test_an_operators_reply_needs_w_for_its_recipient(ask, account):
    message = ask()
    origin = Subject("operator", "one")
    refused = reply(message, origin=origin)
    assert (refused.status, refused.reason) == ("failed", "reply-refused")
    make_contact(account.identity, "alice@example.org", "rw-")
    allowed = reply(message, origin=Subject("operator", "two"))
    assert allowed.status == "accepted"
    assert not allowed.automatic


# --- held for a person ----------------------------------------------------------------------------


@pytest.fixture
def held(ask, account, mail_server):
    Identity.objects.filter(pk=account.identity_id).update(reply_policy="approve")
    account.refresh_from_db()
    waiting = reply(ask(subject="Please"))
    assert waiting.status == "held"
    assert mail_server.submissions == 0
    return waiting


@pytest.mark.invariant(18)
def test_a_held_reply_shows_everything_and_leaves_once_approved(held, mail_server):
    approval = holds.open_for_review(hold_id=held.hold_id, by=OPERATOR)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
    )
    effects.dispatch(effect_id=effect.pk)
    effects.dispatch(effect_id=effect.pk)
    held.refresh_from_db()
    assert (held.status, held.effect_id) == ("accepted", effect.pk)
    assert mail_server.submissions == 1


@pytest.mark.one_database
@pytest.mark.parametrize("switched_off", ["identity", "account"])
def test_what_is_switched_off_makes_nothing_ready_for_approval(held, account, switched_off):
    """Approved, it would leave in a retired name, or fail for good while the account rests."""
    if switched_off == "identity":
        Identity.objects.filter(pk=account.identity_id).update(is_active=False)
    else:
        accounts.disable(account_id=account.pk, by=OPERATOR)
    with pytest.raises(CountersignError):
        holds.open_for_review(hold_id=held.hold_id, by=OPERATOR)
    assert Hold.objects.get().state == "waiting"
    Identity.objects.filter(pk=account.identity_id).update(is_active=True)
    accounts.enable(account_id=account.pk, by=OPERATOR)
    assert holds.open_for_review(hold_id=held.hold_id, by=OPERATOR).state == "pending"


@pytest.mark.one_database
def test_the_preview_names_every_field_that_a_person_must_see(held):
    frozen = SmtpKind().freeze(outbound.subject_of(held))
    assert set(frozen.preview) >= {
        "from", "to", "cc", "bcc", "reply_to", "subject", "date", "message_id", "in_reply_to",
        "references", "text", "attachments", "signed", "account", "thread", "automatic", "source",
    }  # fmt: skip
    assert frozen.preview["to"] == ["alice@example.org"]
    assert frozen.preview["subject"] == "Re: Please"
    assert frozen.preview["source"]["from"] == "alice@example.org"
    assert frozen.preview["text"].encode() in frozen.payload.replace(b"\r\n", b"\n")
    answered = held.in_reply_to.message_id
    assert frozen.preview["in_reply_to"] == frozen.preview["references"] == [answered]
    assert f"References: <{answered}>".encode() in frozen.payload


@pytest.mark.one_database
@pytest.mark.invariant(18)
@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda o: Outbound.objects.filter(pk=o.pk).update(text="Another"), "text_sha256"),
        (lambda o: Outbound.objects.filter(pk=o.pk).update(to=["evil@evil.test"]), "to"),
        (lambda o: Outbound.objects.filter(pk=o.pk).update(subject="Re: other"), "subject"),
        (lambda o: Outbound.objects.filter(pk=o.pk).update(thread=None), "thread"),
        (lambda o: Outbound.objects.filter(pk=o.pk).update(message_id="x@y"), "message_id"),
        (lambda o: Outbound.objects.filter(pk=o.pk).update(automatic=False), "automatic"),
        (
            lambda o: accounts.update_account(
                account_id=o.account_id, by=OPERATOR, smtp_host="evil.test"
            ),
            "account_revision",
        ),
        (
            lambda o: Message.objects.filter(pk=o.in_reply_to_id).update(sender="evil@evil.test"),
            "source_sender",
        ),
        (
            lambda o: Message.objects.filter(pk=o.in_reply_to_id).update(message_id="z@z"),
            "in_reply_to",
        ),
        (lambda o: Identity.objects.filter(accounts=o.account_id).update(name="Eve"), "from_name"),
        (lambda o: Identity.objects.filter(accounts=o.account_id).update(email="e@e.test"), "from"),
        (
            lambda o: Identity.objects.filter(accounts=o.account_id).update(is_active=False),
            "identity_active",
        ),
    ],
)
def test_whatever_changes_after_it_was_shown_prevents_the_contact(held, mail_server, change, field):
    approval = holds.open_for_review(hold_id=held.hold_id, by=OPERATOR)
    change(held)
    with pytest.raises(Conflict) as refused:
        approvals.approve(
            approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
        )
    assert refused.value.field == field
    assert not Effect.objects.exists()
    assert mail_server.submissions == 0


@pytest.mark.one_database
@pytest.mark.invariant(18)
def test_an_account_that_changes_between_the_yes_and_the_contact_prevents_it(held, mail_server):
    approval = holds.open_for_review(hold_id=held.hold_id, by=OPERATOR)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
    )
    accounts.update_account(account_id=held.account_id, by=OPERATOR, smtp_host="evil.test")
    effects.dispatch(effect_id=effect.pk)
    held.refresh_from_db()
    assert (held.status, held.reason) == ("cancelled", "drifted")
    assert mail_server.submissions == 0


@pytest.mark.one_database
@pytest.mark.invariant(18)
def test_the_contact_itself_looks_at_the_account_once_more(held, mail_server):
    frozen = SmtpKind().freeze(outbound.subject_of(held))
    accounts.update_account(account_id=held.account_id, by=OPERATOR, smtp_host="evil.test")
    subject = outbound.subject_of(held)
    act = Act(uuid4(), subject, frozen.payload, frozen.facts, NOTHING)
    result = SmtpKind().contact(act)
    assert (result.outcome, result.reason) == (ContactOutcome.FAILED, "account-changed")
    assert mail_server.submissions == 0


@pytest.mark.one_database
def test_a_no_and_a_withdrawal_end_the_reply(held, mail_server):
    approval = holds.open_for_review(hold_id=held.hold_id, by=OPERATOR)
    approvals.reject(approval_id=approval.pk, by=OPERATOR, via="console", reason="not now")
    held.refresh_from_db()
    assert (held.status, held.reason) == ("rejected", "rejected")
    with pytest.raises(AlreadyDecided):
        holds.open_for_review(hold_id=held.hold_id, by=OPERATOR)
    assert Hold.objects.get().state == "rejected"
    assert mail_server.submissions == 0


def test_smtp_never_claims_more_than_its_outcomes():
    assert SmtpKind.outcomes == frozenset(ContactOutcome)


@pytest.mark.one_database
@pytest.mark.parametrize(("rights", "covered"), [("--x", True), ("r-x", False)])
def test_what_is_answered_is_covered_in_the_preview_where_it_may_not_be_read(
    ask, account, rights, covered
):
    make_contact(account.identity, "worker@example.org", rights)
    message = ask(sender="worker@example.org", subject="secret plan", text="the secret text\n")
    source = SmtpKind().freeze(outbound.subject_of(draft(message))).preview["source"]
    assert (REDACTED in (source["subject"], source["text"])) is covered
    assert ("secret" in f"{source}") is not covered
