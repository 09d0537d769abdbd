"""Open for review, yes, no, and changes: exactly what was shown, by a person, in time."""

from __future__ import annotations

import pytest

from approvals import selectors
from approvals.exceptions import (
    ApprovalExpired,
    ApprovalSuperseded,
    DigestMismatch,
    EffectAlreadyExists,
    EffectOutstanding,
    NotAPerson,
    UnknownKind,
)
from approvals.models import Approval, Effect, Hold
from approvals.services import approvals, effects, holds
from guards.exceptions import AlreadyDecided, InvalidInput, Refused
from guards.models import Decision
from guards.services import identities, tokens
from guards.types import SYSTEM, Action, Asker, Judgement, Rule, Subject, Verdict
from teams.models import Event
from tests.approvals import factories
from tests.approvals.kinds import CountingKind

pytestmark = pytest.mark.django_db


def kinds_of_events() -> list[str]:
    return list(Event.objects.order_by("seq").values_list("kind", flat=True))


def test_a_yes_consumes_the_approval_and_installs_one_intent(kind: CountingKind) -> None:
    approval = factories.opened()
    effect = factories.approve(approval)
    approval.refresh_from_db()
    assert approval.state == Approval.State.CONSUMED
    assert (approval.decided_by, approval.decided_via) == ("operator:ada", "console")
    assert effect.phase == Effect.Phase.INTENT
    assert effect.digest == approval.digest
    assert approval.hold is not None
    assert approval.hold.state == Hold.State.SENT
    assert kinds_of_events() == [
        "hold.opened",
        "approval.pending",
        "approval.approved",
        "approval.consumed",
        "effect.intent",
        "hold.closed",
    ]


def test_a_second_click_gets_the_same_effect(kind: CountingKind) -> None:
    approval = factories.opened()
    assert factories.approve(approval).pk == factories.approve(approval).pk
    assert Effect.objects.count() == 1


def test_the_same_draft_waits_once(kind: CountingKind) -> None:
    wish = factories.request()
    first = holds.hold(request=wish, reason="policy")
    assert holds.hold(request=wish, reason="policy").pk == first.pk


def test_opening_again_takes_a_new_snapshot_and_voids_the_old_page(kind: CountingKind) -> None:
    first = factories.opened()
    kind.body, kind.revision = b"edited", 2
    second = holds.open_for_review(hold_id=first.hold_id, by=factories.OPERATOR)
    assert second.digest != first.digest
    with pytest.raises(ApprovalSuperseded) as caught:
        factories.approve(first)
    assert caught.value.field == "reopened"
    assert factories.approve(second).phase == Effect.Phase.INTENT


@pytest.mark.one_database
@pytest.mark.invariant(18)
@pytest.mark.fault("approval-02")
def test_an_edit_after_review_voids_the_approval_and_names_the_field(kind: CountingKind) -> None:
    approval = factories.opened()
    kind.revision = 2
    with pytest.raises(ApprovalSuperseded) as caught:
        factories.approve(approval)
    assert caught.value.field == "revision"
    approval.refresh_from_db()
    assert (approval.state, approval.drifted) == (Approval.State.SUPERSEDED, "revision")
    assert approval.hold is not None
    assert approval.hold.state == Hold.State.WAITING
    assert not Effect.objects.exists()


@pytest.mark.one_database
@pytest.mark.invariant(18)
def test_what_the_person_saw_has_to_be_what_waits(kind: CountingKind) -> None:
    approval = factories.opened()
    with pytest.raises(DigestMismatch):
        approvals.approve(
            approval_id=approval.pk, by=factories.OPERATOR, via="console", digest="0" * 64
        )
    approval.refresh_from_db()
    assert approval.state == Approval.State.PENDING


@pytest.mark.one_database
@pytest.mark.fault("approval-04")
def test_a_yes_after_the_time_is_over_leaves_nothing(kind: CountingKind, settings: object) -> None:
    settings.APPROVAL_SECONDS = -1  # type: ignore[attr-defined]
    approval = factories.opened()
    with pytest.raises(ApprovalExpired):
        factories.approve(approval)
    approval.refresh_from_db()
    assert approval.state == Approval.State.EXPIRED
    assert not Effect.objects.exists()


@pytest.mark.fault("approval-04")
@pytest.mark.parametrize("answer", [approvals.reject, approvals.request_changes])
def test_a_no_reaches_the_hold_with_its_reason_and_leaves_nothing(
    kind: CountingKind, answer: object
) -> None:
    approval = factories.opened()
    answer(approval_id=approval.pk, by=factories.OPERATOR, via="console", reason="wrong tone")  # type: ignore[operator]
    hold = Hold.objects.get()
    assert hold.state in (Hold.State.REJECTED, Hold.State.CHANGES_REQUESTED)
    assert (hold.answer, hold.closed_by) == ("wrong tone", "operator:ada")
    with pytest.raises(AlreadyDecided):
        factories.approve(approval)
    assert not Effect.objects.exists()
    assert kind.contacts() == []


@pytest.mark.one_database
def test_a_no_needs_a_reason(kind: CountingKind) -> None:
    with pytest.raises(InvalidInput):
        approvals.reject(
            approval_id=factories.opened().pk, by=factories.OPERATOR, via="console", reason="  "
        )


@pytest.mark.one_database
@pytest.mark.parametrize("by", [Asker("identity", "bot"), Asker("identity", "eve"), SYSTEM])
def test_only_a_person_opens_and_answers(kind: CountingKind, by: Asker) -> None:
    approval = factories.opened()
    for via in Approval.Via.values:
        with pytest.raises((Refused, InvalidInput)):
            approvals.approve(approval_id=approval.pk, by=by, via=via, digest=approval.digest)
    with pytest.raises(NotAPerson):
        holds.open_for_review(hold_id=approval.hold_id, by=by)
    assert not Effect.objects.exists()


@pytest.mark.one_database
@pytest.mark.parametrize(("kind_of", "may"), [("human", True), ("agent", False)])
def test_a_token_answers_if_a_person_holds_it(kind: CountingKind, kind_of: str, may: bool) -> None:
    identity = identities.create_identity(
        handle="someone", email="someone@example.org", kind=kind_of, by=factories.OPERATOR
    )
    token, _ = tokens.mint(
        label="answers", scopes=["approvals:read"], identity=identity, by=factories.OPERATOR
    )
    approval = factories.opened()
    answer = {"by": Asker("token", token.prefix), "via": "token", "digest": approval.digest}
    if may:
        assert approvals.approve(approval_id=approval.pk, **answer).phase == Effect.Phase.INTENT
    else:
        with pytest.raises(NotAPerson):
            approvals.approve(approval_id=approval.pk, **answer)


@pytest.mark.one_database
def test_a_withdrawn_draft_cannot_be_approved(kind: CountingKind) -> None:
    approval = factories.opened()
    holds.withdraw(hold_id=approval.hold_id, by=factories.AGENT, reason="I found a better answer")
    with pytest.raises(ApprovalSuperseded):
        factories.approve(approval)
    with pytest.raises(AlreadyDecided):
        holds.open_for_review(hold_id=approval.hold_id, by=factories.OPERATOR)


def test_one_act_is_outstanding_per_account_and_source(kind: CountingKind) -> None:
    source = Subject("mail.message", "the-same")
    factories.intent(source=source)
    second = factories.opened(source=source)
    with pytest.raises(EffectOutstanding):
        factories.approve(second)
    second.refresh_from_db()
    assert second.state == Approval.State.PENDING
    other_account = Subject("mail.account", "2")
    assert factories.intent(source=source, account=other_account).phase == Effect.Phase.INTENT


def test_a_policy_approves_with_its_decision_and_claims_the_intent(kind: CountingKind) -> None:
    effect = approvals.approve_by_policy(request=factories.request(), judgement=factories.ALLOWED)
    approval = effect.approval
    assert approval.decision == Decision.objects.get()
    assert (approval.decided_via, approval.state) == ("policy", "consumed")
    assert effects.dispatch(effect_id=effect.pk).phase == Effect.Phase.ACCEPTED
    assert len(kind.contacts()) == 1


def test_a_policy_that_does_not_allow_freezes_nothing(kind: CountingKind) -> None:
    denied = Judgement(Action.REPLY, Verdict.DENY, Rule.NO_WRITE)
    with pytest.raises(Refused) as caught:
        approvals.approve_by_policy(request=factories.request(), judgement=denied)
    assert caught.value.rule == Rule.NO_WRITE
    assert kind.frozen == []


@pytest.mark.fault("send-05")
def test_the_same_act_asked_twice_is_the_same_effect_and_another_is_refused(
    kind: CountingKind,
) -> None:
    wish = factories.request()
    first = approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
    effects.dispatch(effect_id=first.pk)
    again = approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
    assert again.pk == first.pk
    effects.dispatch(effect_id=again.pk)
    assert len(kind.contacts()) == 1
    kind.body = b"another text"
    with pytest.raises(EffectAlreadyExists):
        approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
    with pytest.raises(EffectAlreadyExists):
        holds.hold(request=wish, reason="once more")


def test_approvals_past_their_time_expire_by_the_databases_clock(
    kind: CountingKind, settings: object
) -> None:
    young = factories.opened()
    settings.APPROVAL_SECONDS = -1  # type: ignore[attr-defined]
    old = factories.opened()
    assert approvals.expire_due() == 1
    old.refresh_from_db()
    young.refresh_from_db()
    assert (old.state, young.state) == (Approval.State.EXPIRED, Approval.State.PENDING)


@pytest.mark.one_database
def test_the_page_shows_preview_clock_and_drift(kind: CountingKind) -> None:
    approval = factories.opened()
    assert selectors.preview(approval)["text"] == "exactly these bytes"
    assert selectors.payload(approval) == b"exactly these bytes"
    clock = selectors.clock(approval)
    assert 290 < clock.seconds_left <= 300
    assert not clock.is_over
    assert selectors.drift(approval) is None
    kind.revision = 2
    assert selectors.drift(approval) == "revision"
    waiting = selectors.waiting_holds().get()
    assert waiting.open_approvals == [approval]  # type: ignore[attr-defined]


def test_an_unregistered_kind_cannot_even_be_held() -> None:
    with pytest.raises(UnknownKind):
        factories.held(kind="nobody.knows")


@pytest.mark.one_database
def test_private_bytes_are_not_in_the_database_or_the_log(kind: CountingKind) -> None:
    effect = factories.intent()
    assert b"exactly" not in bytes(effect.payload.ciphertext)
    assert b"owner@example.org" not in bytes(effect.facts.ciphertext)
    told = "".join(str(facts) for facts in Event.objects.values_list("facts", flat=True))
    assert "owner@example.org" not in told
    assert "exactly" not in told
