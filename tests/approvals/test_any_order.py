"""Any order of approve, expire, edit, cancel, crash, dispatch, reconcile: the invariants hold."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
)

from approvals import registry
from approvals.models import Approval, Effect, Hold, Job
from approvals.services import approvals, effects, holds
from approvals.types import ContactOutcome, ContactResult
from guards.exceptions import CountersignError
from guards.types import Subject
from teams.models import Event
from tests.approvals import factories
from tests.approvals.kinds import CountingKind
from tests.exploring import explore

#: What a contact may bring, a library's failure included.
RESULTS = st.sampled_from(
    [
        ContactResult(ContactOutcome.ACCEPTED, "smtp-250"),
        ContactResult(ContactOutcome.VERIFIED, "found-in-sent"),
        ContactResult(ContactOutcome.FAILED, "smtp-550"),
        ContactResult(ContactOutcome.UNKNOWN, "connection-lost-after-data"),
        RuntimeError("the library broke"),
    ]
)
CRASHES = st.sampled_from(["nowhere", "before", "after"])


class Crash(BaseException):
    """The process ends here."""


class SignOffDesk(RuleBasedStateMachine):
    """One kind of act, a few subjects, two sources, and whatever people and machines may do."""

    approvals_open = Bundle("approvals_open")
    intents = Bundle("intents")

    def __init__(self) -> None:
        super().__init__()
        folder = Path(tempfile.mkdtemp(prefix="cs-desk-"))
        self.kind = CountingKind(folder / "contacts", name=f"tests.{folder.name[-12:]}")
        registry.register_kind(self.kind)
        self.sources = [Subject("mail.message", f"{folder.name}-{n}") for n in (1, 2)]
        self.finals: dict[str, str] = {}

    def teardown(self) -> None:
        registry.forget_kind(self.kind.name)

    @rule(target=approvals_open, source=st.integers(0, 1))
    def open_a_draft(self, source: int) -> str:
        wish = factories.request(kind=self.kind.name, source=self.sources[source])
        held = holds.hold(request=wish, reason="policy")
        return str(holds.open_for_review(hold_id=held.pk, by=factories.OPERATOR).pk)

    @rule(target=approvals_open, approval=approvals_open)
    def open_again(self, approval: str) -> str:
        hold_id = Approval.objects.get(pk=approval).hold_id
        try:
            return str(holds.open_for_review(hold_id=hold_id, by=factories.OPERATOR).pk)
        except CountersignError:
            return approval

    @rule(target=intents, approval=approvals_open)
    def click_yes(self, approval: str) -> str:
        row = Approval.objects.get(pk=approval)
        try:
            return str(factories.approve(row).pk)
        except CountersignError:
            return ""

    @rule(approval=consumes(approvals_open))
    def click_no(self, approval: str) -> None:
        try:
            approvals.reject(
                approval_id=approval, by=factories.OPERATOR, via="console", reason="no"
            )
        except CountersignError:
            return

    @rule(approval=consumes(approvals_open))
    def withdraw(self, approval: str) -> None:
        hold_id = Approval.objects.get(pk=approval).hold_id
        try:
            holds.withdraw(hold_id=hold_id, by=factories.AGENT, reason="no longer")
        except CountersignError:
            return

    @rule()
    def edit(self) -> None:
        self.kind.revision += 1

    @rule()
    def sweep(self) -> None:
        approvals.expire_due()
        effects.reconcile()

    @rule(effect=intents, result=RESULTS, crash=CRASHES)
    def dispatch(self, effect: str, result: ContactResult, crash: str) -> None:
        if not effect:
            return

        def end() -> None:
            raise Crash

        self.kind.result = result
        if crash != "nowhere":
            setattr(self.kind, crash, end)
        try:
            effects.dispatch(effect_id=effect)
        except Crash:
            pass
        finally:
            self.kind.before = self.kind.after = lambda: None

    @rule(effect=intents)
    def claim_and_die(self, effect: str) -> None:
        if effect:
            effects._claim(effect)

    @rule(effect=intents)
    def cancel(self, effect: str) -> None:
        try:
            effects.cancel(effect_id=effect or _NOBODY, by=factories.OPERATOR, reason="stop")
        except CountersignError:
            return

    @rule(effect=intents)
    def time_passes(self, effect: str) -> None:
        Job.objects.filter(effect__pk=effect or _NOBODY).update(deadline=_LONG_AGO)

    @rule(effect=intents)
    def acknowledge(self, effect: str) -> None:
        try:
            effects.acknowledge_unknown(effect_id=effect or _NOBODY, by=factories.OPERATOR)
        except CountersignError:
            return

    def mine(self) -> list[Effect]:
        return list(Effect.objects.filter(kind=self.kind.name).select_related("approval__hold"))

    @invariant()
    def at_most_one_contact_per_intent_and_none_before_its_mark(self) -> None:
        for effect in self.mine():
            seen = self.kind.contacts(Subject(effect.subject_type, effect.subject_id))
            assert len(seen) <= 1
            if seen:
                assert effect.contact_marked_at is not None
            if effect.phase in (Effect.Phase.INTENT, Effect.Phase.CANCELLED):
                assert effect.contact_marked_at is None

    @invariant()
    def what_is_final_stays(self) -> None:
        for effect in self.mine():
            if effect.phase not in Effect.OUTSTANDING:
                assert self.finals.setdefault(str(effect.pk), effect.phase) == effect.phase

    @invariant()
    def only_a_consumed_approval_has_an_effect_and_its_hold_is_closed(self) -> None:
        for approval in Approval.objects.filter(kind=self.kind.name).select_related("hold"):
            has_effect = Effect.objects.filter(approval=approval).exists()
            assert has_effect == (approval.state == Approval.State.CONSUMED)
            if has_effect:
                assert approval.hold is not None
                assert approval.hold.state == Hold.State.SENT

    @invariant()
    def one_act_is_outstanding_per_source(self) -> None:
        for source in self.sources:
            about = Effect.objects.filter(source_id=source.id, kind=self.kind.name)
            assert about.outstanding().count() <= 1

    @invariant()
    def every_phase_has_its_events_in_order(self) -> None:
        for effect in self.mine():
            told = Event.objects.filter(subject_id=str(effect.pk)).exclude(
                kind="effect.acknowledged"
            )
            kinds = list(told.order_by("seq").values_list("kind", flat=True))
            assert kinds[0] == "effect.intent"
            assert kinds[-1] == f"effect.{effect.phase}"
            assert len(kinds) == len(set(kinds)) == effect.revision + 1


#: A deadline is never put off: always the same moment.
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
_NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.mark.one_database
@pytest.mark.invariant(19)
@pytest.mark.fault("queue-01", "queue-03", "approval-02", "approval-04")
@pytest.mark.django_db
def test_no_order_of_events_makes_a_second_contact() -> None:
    explore(SignOffDesk, examples=6, steps=20)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.django_db
def test_no_order_of_events_makes_a_second_contact_for_long() -> None:
    explore(SignOffDesk, examples=100, steps=40)
