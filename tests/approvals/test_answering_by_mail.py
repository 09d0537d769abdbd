"""Signed mail as a way to answer: the owner's key says yes, mail without it only no."""

from __future__ import annotations

from datetime import timedelta

import pytest

from approvals.exceptions import ApprovalSuperseded, NotAPerson
from approvals.models import Approval, Effect, Hold
from approvals.services import approvals, effects, holds
from approvals.services.people import REPORTED_OWNER, signed_owner
from guards.exceptions import AlreadyDecided, InvalidInput, Refused
from guards.types import SYSTEM, Asker
from tests.approvals import factories
from tests.approvals.kinds import CountingKind

pytestmark = pytest.mark.django_db

OWNER = signed_owner("7ABCD6DB7978683815810C39B6FE19B7A1271FE6")
DAY = timedelta(days=1)


def opened_for_mail() -> Approval:
    return holds.open_for_mail(hold_id=factories.held().pk, by=SYSTEM, validity=DAY)


def yes(approval: Approval, by: Asker = OWNER, via: str = "mail") -> Effect:
    return approvals.approve(approval_id=approval.pk, by=by, via=via, digest=approval.digest)


def test_the_owners_key_says_yes_to_what_was_opened_for_mail(kind: CountingKind) -> None:
    approval = opened_for_mail()
    assert approval.expires_at - approval.created_at == DAY
    assert yes(approval).phase == Effect.Phase.INTENT
    approval.refresh_from_db()
    assert (approval.decided_by, approval.decided_via) == (str(OWNER), "mail")


@pytest.mark.one_database
@pytest.mark.parametrize("by", [REPORTED_OWNER, SYSTEM, Asker("owner"), Asker("owner", "ABC")])
def test_nobody_else_says_yes_by_mail(kind: CountingKind, by: Asker) -> None:
    approval = opened_for_mail()
    with pytest.raises((NotAPerson, InvalidInput)):
        yes(approval, by=by)
    assert not Effect.objects.exists()


@pytest.mark.one_database
def test_the_owner_answers_by_mail_only_and_others_not_by_mail(kind: CountingKind) -> None:
    approval = opened_for_mail()
    for by, via in ((OWNER, "console"), (OWNER, "token"), (factories.OPERATOR, "mail")):
        with pytest.raises(InvalidInput):
            yes(approval, by=by, via=via)
    assert not Effect.objects.exists()


@pytest.mark.one_database
def test_what_was_opened_for_mail_is_not_answered_in_the_console(kind: CountingKind) -> None:
    approval = opened_for_mail()
    with pytest.raises(Refused) as refused:
        yes(approval, by=factories.OPERATOR, via="console")
    assert refused.value.rule == "answer-elsewhere"


@pytest.mark.one_database
def test_a_kind_for_the_console_alone_is_neither_opened_for_mail_nor_answered_by_it(
    kind: CountingKind,
) -> None:
    kind.via = frozenset({"console"})
    waiting = factories.held()
    with pytest.raises(Refused) as refused:
        holds.open_for_mail(hold_id=waiting.pk, by=SYSTEM, validity=DAY)
    assert refused.value.rule == "answer-elsewhere"
    approval = holds.open_for_review(hold_id=waiting.pk, by=factories.OPERATOR)
    with pytest.raises(Refused) as refused:
        yes(approval)
    assert kind.label in refused.value.detail


@pytest.mark.one_database
def test_a_review_in_the_console_replaces_the_one_for_mail_and_the_other_way(
    kind: CountingKind,
) -> None:
    mailed = opened_for_mail()
    console = holds.open_for_review(hold_id=mailed.hold_id, by=factories.OPERATOR)
    with pytest.raises(ApprovalSuperseded):
        yes(mailed)
    again = holds.open_for_mail(hold_id=mailed.hold_id, by=SYSTEM, validity=DAY)
    with pytest.raises(ApprovalSuperseded):
        factories.approve(console)
    assert yes(again).phase == Effect.Phase.INTENT


@pytest.mark.one_database
def test_mail_without_a_signature_says_no(kind: CountingKind) -> None:
    approval = opened_for_mail()
    approvals.reject(approval_id=approval.pk, by=REPORTED_OWNER, via="mail", reason="not now")
    hold = Hold.objects.get(pk=approval.hold_id)
    assert (hold.state, hold.answer) == (Hold.State.REJECTED, "not now")


def test_a_pause_voids_what_waits_for_an_answer_and_lets_the_draft_wait(kind: CountingKind) -> None:
    approval = opened_for_mail()
    held = holds.set_back(hold_id=approval.hold_id, drifted="paused")
    assert held.state == Hold.State.WAITING
    with pytest.raises(ApprovalSuperseded) as caught:
        yes(approval)
    assert caught.value.field == "paused"
    holds.withdraw(hold_id=held.pk, by=factories.OPERATOR, reason="done with")
    with pytest.raises(AlreadyDecided):
        holds.set_back(hold_id=held.pk, drifted="paused")


def test_a_stop_without_a_signature_cancels_what_no_worker_holds(kind: CountingKind) -> None:
    effect = yes(opened_for_mail())
    cancelled = effects.cancel(effect_id=effect.pk, by=REPORTED_OWNER, reason="stop")
    assert cancelled.phase == Effect.Phase.CANCELLED
    effects.dispatch(effect_id=effect.pk)
    assert kind.contacts() == []
