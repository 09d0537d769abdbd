"""Any order of open, approve, expire, edit, cancel, crash, dispatch, restart, revoke, close: an act
under authority is made once at most, never without all that it rests on, and honestly named.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from django.db.models import F
from django.test import override_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
)

from approvals import registry
from approvals.exceptions import ContactRefused
from approvals.models import (
    Approval,
    Connection,
    Consent,
    ContactBudget,
    Effect,
    Goal,
    Job,
    Root,
)
from approvals.services import (
    approvals,
    authority,
    consents,
    effects,
    goals,
    holds,
    jobs,
    roots,
)
from approvals.types import BoundConnection, ContactOutcome, ContactResult, Purpose
from guards.exceptions import CountersignError
from guards.services.units import unit_of_work
from guards.types import Subject
from tests.approvals import factories, sessions
from tests.approvals.sessions import GuardedKind
from tests.exploring import explore

ANSWERS = st.sampled_from(
    [
        ContactResult(ContactOutcome.ACCEPTED, "http-200"),
        ContactResult(ContactOutcome.UNKNOWN, "connection_broken"),
        ContactResult(ContactOutcome.FAILED, "http-500"),
        RuntimeError("the library broke"),
    ]
)
COPIES = st.sampled_from(
    [
        ContactResult(ContactOutcome.VERIFIED, "sent_copy_matches"),
        ContactResult(ContactOutcome.UNKNOWN, "mismatch"),
        None,
        RuntimeError("the library broke"),
    ]
)
CRASHES = st.sampled_from(["nowhere", "looking", "before", "after"])
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
_NOBODY = "00000000-0000-0000-0000-000000000000"


class Crash(BaseException):
    """The process ends here."""


class CheckedKind(GuardedKind):
    """Looks, as the provider would, whether a post has all of its authority at that moment."""

    def connections(self, subject: Subject, purpose: Purpose) -> Sequence[BoundConnection]:
        """The one connection of this run, as it stands."""
        rows = Connection.objects.filter(account_id=self.name)
        return [BoundConnection(one.pk, one.revision) for one in rows]

    def contact(self, act: object) -> ContactResult:  # type: ignore[override]
        """The post; without authority it is written down as such."""
        effect = Effect.objects.get(pk=act.effect_id)  # type: ignore[attr-defined]
        try:
            with unit_of_work():
                authority.require_effect(effect)
        except ContactRefused as refused:
            self.frozen.append(f"POSTED WITHOUT {refused.reason}")
        return super().contact(act)  # type: ignore[arg-type]


class Desk(RuleBasedStateMachine):
    """One guarded kind, two sources, one session at a time, and whatever may happen to them."""

    reviews = Bundle("reviews")
    intents = Bundle("intents")

    def __init__(self) -> None:
        super().__init__()
        folder = Path(tempfile.mkdtemp(prefix="cs-auth-"))
        self.kind = CheckedKind(folder / "contacts", name=f"tests.{folder.name[-12:]}")
        registry.register_kind(self.kind)
        self.sources = [Subject("mail.message", f"{folder.name}-{n}") for n in (1, 2)]
        self.root = sessions.session()
        self.phases: dict[str, list[str]] = {}
        self.counts: dict[int, int] = {}
        Connection.objects.create(
            account_type=sessions.ACCOUNT.type,
            account_id=self.kind.name,
            use="read",
            client_id="client",
            client_secret_ref="env:NOWHERE",
            refresh_token_ref="env:NOWHERE",
            created_by="operator:ada",
        )

    def teardown(self) -> None:
        registry.forget_kind(self.kind.name)

    # --- what people do -------------------------------------------------------------------------

    @rule(target=reviews, source=st.integers(0, 1), seconds=st.sampled_from([300, 300, 0]))
    def open_a_draft(self, source: int, seconds: int) -> str:
        """An approval of no seconds has expired by the time that anybody reads it."""
        wish = factories.request(kind=self.kind.name, source=self.sources[source])
        return self._opened(str(holds.hold(request=wish, reason="policy").pk), seconds)

    @rule(target=reviews, approval=reviews)
    def open_again(self, approval: str) -> str:
        hold = Approval.objects.filter(pk=approval).values_list("hold_id", flat=True).first()
        return self._opened(str(hold or _NOBODY), 300)

    @rule(target=intents, approval=reviews, seconds=st.sampled_from([120, 120, 0]))
    def say_yes(self, approval: str, seconds: int) -> str:
        """A grant of no seconds has expired by the time that a worker spends it."""
        try:
            with mock.patch.object(jobs, "DEADLINE_SECONDS", seconds):
                return str(sessions.approve(approvals.found(approval), self.root).pk)
        except CountersignError:
            return _NOBODY

    @rule(approval=reviews)
    def say_no(self, approval: str) -> None:
        self._tried(
            lambda: approvals.reject(
                approval_id=approval, by=factories.OPERATOR, via="console", reason="no"
            )
        )

    @rule(effect=intents)
    def cancel(self, effect: str) -> None:
        self._tried(lambda: effects.cancel(effect_id=effect, by=factories.OPERATOR, reason="stop"))

    @rule(effect=intents)
    def acknowledge(self, effect: str) -> None:
        self._tried(lambda: effects.acknowledge_unknown(effect_id=effect, by=factories.OPERATOR))

    @rule(revoked=st.booleans())
    def the_session_ends_and_another_begins(self, revoked: bool) -> None:
        end = roots.revoke if revoked else roots.end
        end(root_id=self.root.pk, by=factories.OPERATOR)
        self.root = sessions.session()

    @rule(effect=intents)
    def revoke_its_grant(self, effect: str) -> None:
        for grant in Consent.objects.filter(spender=effect):
            consents.revoke(consent_id=grant.pk, by=factories.OPERATOR)

    @rule(effect=intents, deleted=st.booleans())
    def end_its_goal(self, effect: str, deleted: bool) -> None:
        for goal in Goal.objects.filter(effects=effect):
            (goals.delete if deleted else goals.close)(goal)

    # --- what happens ---------------------------------------------------------------------------

    @rule()
    def edit(self) -> None:
        self.kind.revision += 1

    @rule()
    def the_connection_changes(self) -> None:
        Connection.objects.filter(account_id=self.kind.name).update(revision=F("revision") + 1)

    @rule()
    def sweep(self) -> None:
        approvals.expire_due()
        effects.reconcile()
        jobs.settle_lost()

    @rule(effect=intents)
    def time_passes(self, effect: str) -> None:
        Job.objects.filter(effect__pk=effect).exclude(deadline=None).update(deadline=_LONG_AGO)

    @rule(effect=intents)
    def a_worker_claims_and_dies(self, effect: str) -> None:
        self._tried(lambda: effects._claim(effect))

    @rule(
        effect=intents,
        answer=ANSWERS,
        copy=COPIES,
        crash=CRASHES,
        revoking=st.sampled_from([False, False, True]),
    )
    def dispatch(
        self, effect: str, answer: object, copy: object, crash: str, revoking: bool
    ) -> None:
        """One worker's attempt; the session may be revoked while it looks at the source."""

        def end() -> None:
            raise Crash

        def revoke() -> None:
            roots.revoke(root_id=self.root.pk, by=factories.OPERATOR)

        self.kind.result, self.kind.seen = answer, copy  # type: ignore[assignment]
        if revoking:
            self.kind.looking = revoke
        if crash != "nowhere":
            setattr(self.kind, crash, end)
        try:
            effects.dispatch(effect_id=effect)
        except (Crash, CountersignError):
            pass
        finally:
            self.kind.before = self.kind.after = self.kind.looking = lambda: None
        if revoking and not roots.is_live(Root.objects.get(pk=self.root.pk)):
            self.root = sessions.session()

    # --- what holds -----------------------------------------------------------------------------

    def mine(self) -> list[Effect]:
        return list(Effect.objects.filter(kind=self.kind.name).select_related("consent"))

    @invariant()
    def at_most_one_post_per_intent_and_none_without_its_mark(self) -> None:
        for effect in self.mine():
            posts = len(self.kind.contacts(Subject(effect.subject_type, effect.subject_id)))
            assert posts <= 1
            assert not posts or effect.contact_marked_at is not None
            counted = effect.consent.budgets.get(contact="post").spent if effect.consent else 0
            assert counted == (effect.contact_marked_at is not None)

    @invariant()
    def nothing_was_posted_without_live_authority(self) -> None:
        assert not [line for line in self.kind.frozen if line.startswith("POSTED")]

    @invariant()
    def what_the_provider_saw_was_counted(self) -> None:
        lines = self.kind.ledger.read_text().splitlines() if self.kind.ledger.exists() else []
        seen = Counter(line.split(" ")[0] for line in lines)
        mine = ContactBudget.objects.filter(consent__goal__root__user__username="ada")
        for contact in ("refresh", "read", "get"):
            spent = sum(mine.filter(contact=contact).values_list("spent", flat=True))
            assert seen[contact] <= spent

    @invariant()
    def counts_never_go_down_and_stay_within_their_caps(self) -> None:
        for budget in ContactBudget.objects.all():
            assert self.counts.get(budget.pk, 0) <= budget.spent <= budget.cap
            self.counts[budget.pk] = budget.spent

    @invariant()
    def phases_only_go_on_and_unknown_is_final(self) -> None:
        for effect in self.mine():
            seen = self.phases.setdefault(str(effect.pk), [])
            if not seen or seen[-1] != effect.phase:
                seen.append(effect.phase)
            # This kind is never merely accepted, and a refusal after the mark is unknown.
            assert seen[-1] in {"intent", "marked", "verified", "unknown", "cancelled"}
            moves = list(pairwise(seen))
            assert all(old in ("intent", "marked") for old, _ in moves)

    @invariant()
    def a_job_has_one_attempt_and_its_effect_says_how_it_ended(self) -> None:
        for effect in self.mine():
            job = Job.objects.get(pk=effect.job_id)
            assert job.attempts <= 1
            if effect.phase not in Effect.OUTSTANDING:
                assert (job.outcome, job.finished_at is not None) == (effect.phase, True)

    @invariant()
    def one_act_is_outstanding_per_source(self) -> None:
        for source in self.sources:
            about = Effect.objects.filter(source_id=source.id, kind=self.kind.name)
            assert about.outstanding().count() <= 1

    # --- how ------------------------------------------------------------------------------------

    def _opened(self, hold_id: str, seconds: int) -> str:
        try:
            with override_settings(APPROVAL_SECONDS=seconds):
                review = holds.open_for_review(
                    hold_id=hold_id, by=factories.OPERATOR, root=self.root
                )
        except CountersignError:
            return _NOBODY
        return str(review.pk)

    @staticmethod
    def _tried(act: object) -> None:
        try:
            act()  # type: ignore[operator]
        except CountersignError:
            return


@pytest.mark.one_database
@pytest.mark.invariant(19)
@pytest.mark.fault("queue-01", "queue-03", "approval-02", "approval-04")
@pytest.mark.django_db
def test_no_order_makes_a_second_post_or_one_without_authority() -> None:
    explore(Desk, examples=5, steps=20)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.django_db
def test_no_order_makes_a_second_post_or_one_without_authority_for_long() -> None:
    explore(Desk, examples=60, steps=40)


@pytest.mark.one_database
@pytest.mark.django_db
def test_the_measure_itself_sees_a_post_without_authority() -> None:
    desk = Desk()
    intent = desk.say_yes(desk.open_a_draft(0, 300), 120)
    assert intent != _NOBODY
    desk.the_session_ends_and_another_begins(revoked=True)
    taken, unseen = ContactResult(ContactOutcome.ACCEPTED, "http-200"), None
    blind = mock.patch.multiple(effects, _why_not=lambda *_: ("", ""), _why_too_late=lambda *_: "")
    unasked = mock.patch.object(CheckedKind, "observe", lambda *_: time.monotonic())
    with blind, unasked:
        desk.dispatch(intent, taken, unseen, "nowhere", revoking=False)
    assert desk.kind.posts() == 1
    with pytest.raises(AssertionError):
        desk.nothing_was_posted_without_live_authority()
    with pytest.raises(AssertionError):
        desk.at_most_one_post_per_intent_and_none_without_its_mark()
    desk.teardown()
