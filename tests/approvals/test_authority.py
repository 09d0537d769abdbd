"""An act under authority: what ended between the yes and the contact is named, and nothing left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from approvals import registry
from approvals.exceptions import Blocked, ContactRefused
from approvals.models import (
    Approval,
    Artifact,
    Consent,
    ContactBudget,
    Effect,
    Goal,
    Job,
    Root,
)
from approvals.services import approvals, consents, effects, goals, holds, jobs, roots
from approvals.types import Contact, ContactOutcome, ContactResult, Purpose
from guards import triggers
from guards.exceptions import AlreadyDecided, Refused
from guards.types import Asker
from tests.approvals import factories, sessions
from tests.approvals.points import undone
from tests.approvals.sessions import GuardedKind

pytestmark = pytest.mark.django_db

VERIFIED = ContactResult(ContactOutcome.VERIFIED, "sent_copy_matches")


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[GuardedKind]:
    guarded = GuardedKind(tmp_path / "contacts", seen=VERIFIED)
    registry.register_kind(guarded)
    registry.require_authority(guarded.name)
    yield guarded
    registry.forget_kind(guarded.name)


@pytest.fixture
def root() -> Root:
    return sessions.session()


def counts(consent: Consent | None) -> dict[str, int]:
    assert consent is not None
    return dict(consent.budgets.values_list("contact", "spent"))


def test_one_act_spends_exactly_what_it_contacts(kind: GuardedKind, root: Root) -> None:
    done = effects.dispatch(effect_id=sessions.intent(root).pk)
    assert (done.phase, done.reason) == ("verified", "sent_copy_matches")
    assert counts(done.consent) == {"refresh": 1, "read": 1, "post": 1, "get": 1}
    assert (kind.posts(), kind.seen_contacts(Contact.GET)) == (1, 1)
    done.job.refresh_from_db()
    assert (done.job.outcome, done.job.attempts) == ("verified", 1)
    assert done.job.quiesced_at is not None
    goal = Goal.objects.get(pk=done.goal_id)
    assert goal.closed_at is not None


def _root(**changes: object) -> Callable[[Effect], object]:
    return lambda effect: Root.objects.filter(pk=effect.root_id).update(**changes)


def _goal(**changes: object) -> Callable[[Effect], object]:
    return lambda effect: Goal.objects.filter(pk=effect.goal_id).update(
        revision=F("revision") + 1, **changes
    )


def _consent(**changes: object) -> Callable[[Effect], object]:
    return lambda effect: Consent.objects.filter(pk=effect.consent_id).update(**changes)


def _user(**changes: object) -> Callable[[Effect], object]:
    def change(effect: Effect) -> None:
        user = Root.objects.get(pk=effect.root_id).user
        type(user).objects.filter(pk=user.pk).update(**changes)

    return change


def _approval(**changes: object) -> Callable[[Effect], object]:
    return lambda effect: Approval.objects.filter(pk=effect.approval_id).update(**changes)


def _other_password(effect: Effect) -> None:
    user = Root.objects.get(pk=effect.root_id).user
    user.set_password("another one entirely")
    user.save()


LONG_AGO = timezone.now() - timedelta(days=1)
#: What happens between the yes and the contact; the reason and the field that name it.
FLIPS: dict[str, tuple[Callable[[Effect], object], str, str]] = {
    "session-ended": (_root(ended_at=LONG_AGO), "session_unavailable", "root"),
    "session-idle": (_root(idle_until=LONG_AGO), "session_unavailable", "root"),
    "session-over": (
        _root(idle_until=LONG_AGO, expires_at=LONG_AGO),
        "session_unavailable",
        "root",
    ),
    "session-revoked": (_root(revoked_at=LONG_AGO), "authority_revoked", "root"),
    "user-deactivated": (_user(is_active=False), "authority_revoked", "root"),
    "user-no-longer-of-the-staff": (_user(is_staff=False), "authority_revoked", "root"),
    "password-changed": (_other_password, "session_unavailable", "root"),
    "goal-closed": (_goal(closed_at=LONG_AGO), "goal_closed", "goal"),
    "goal-deleted": (_goal(deleted_at=LONG_AGO), "goal_deleted", "goal"),
    "goal-reassigned": (_goal(principal="operator:bob"), "goal_reassigned", "goal"),
    "goal-changed": (_goal(), "goal_changed", "goal"),
    "grant-revoked": (_consent(revoked_at=LONG_AGO), "authority_revoked", "consent"),
    "grant-expired": (_consent(expires_at=LONG_AGO), "consent_expired", "consent"),
    "grant-for-something-else": (_consent(purpose="connect"), "consent_changed", "consent"),
    "grant-of-another-digest": (_consent(digest="0" * 64), "consent_changed", "consent"),
    "grant-of-other-connections": (
        _consent(connections=[{"id": "00000000-0000-0000-0000-000000000000", "revision": 1}]),
        "consent_changed",
        "consent",
    ),
    "cap-raised": (
        lambda effect: ContactBudget.objects.filter(consent=effect.consent_id).update(cap=9),
        "consent_changed",
        "consent",
    ),
    "contacts-used-up": (
        lambda effect: ContactBudget.objects.filter(
            consent=effect.consent_id, contact="read"
        ).update(spent=F("cap")),
        "contacts_used_up",
        "read",
    ),
    "deadline-passed": (
        lambda effect: Job.objects.filter(pk=effect.job_id).update(deadline=LONG_AGO),
        "deadline_passed",
        "job",
    ),
    "approval-of-another-digest": (_approval(digest="0" * 64), "digest_changed", "digest"),
    "approval-prolonged": (_approval(expires_at=timezone.now()), "expiry_changed", "expiry"),
    "approval-of-no-session": (_approval(root=None), "root_changed", "root"),
    "approval-of-no-goal": (_approval(goal=None), "goal_changed", "goal"),
}


def _during_the_last_look(kind: GuardedKind, effect: Effect, flip: Callable[[], None]) -> None:
    kind.looking = flip


def _before_the_worker(kind: GuardedKind, effect: Effect, flip: Callable[[], None]) -> None:
    flip()


@pytest.mark.one_database
@pytest.mark.parametrize("when", [_before_the_worker, _during_the_last_look])
def test_what_was_changed_since_the_yes_is_named_and_nothing_is_posted(
    kind: GuardedKind, root: Root, subtests: pytest.Subtests, when: Callable[..., None]
) -> None:
    intent = sessions.intent(root)
    triggers.lift("approvals")
    for name, (flip, reason, field) in FLIPS.items():
        if when is _before_the_worker and name == "deadline-passed":
            continue  # a deadline begins with the claim
        if when is _during_the_last_look and name == "contacts-used-up":
            continue  # after the last look nothing is read
        with subtests.test(name), undone():
            effect = Effect.objects.get(pk=intent.pk)

            def flipped(flip: Callable[[Effect], object] = flip, effect: Effect = effect) -> None:
                flip(effect)

            kind.looking = lambda: None
            when(kind, effect, flipped)
            done = effects.dispatch(effect_id=effect.pk)
            assert (done.phase, done.reason, done.detail["field"]) == ("cancelled", reason, field)
            assert done.contact_marked_at is None
            assert kind.posts() == 0
            again = effects.dispatch(effect_id=effect.pk)
            assert (again.phase, kind.posts()) == ("cancelled", 0)


@pytest.mark.one_database
@pytest.mark.parametrize("part", ["payload", "facts"])
def test_one_flipped_byte_of_what_was_frozen_is_never_sent(
    kind: GuardedKind, root: Root, part: str
) -> None:
    effect = sessions.intent(root)
    triggers.lift("approvals")
    artifact: Artifact = getattr(effect, part)
    flipped = bytearray(artifact.ciphertext)
    flipped[-1] ^= 1
    Artifact.objects.filter(pk=artifact.pk).update(ciphertext=bytes(flipped))
    done = effects.dispatch(effect_id=effect.pk)
    assert (done.phase, done.detail["field"]) == ("failed", part)
    assert kind.posts() == 0


@pytest.mark.one_database
@pytest.mark.parametrize("column", ["account_id", "source_id", "subject_id", "project"])
def test_another_source_account_or_subject_than_approved_is_named(
    kind: GuardedKind, root: Root, column: str
) -> None:
    effect = sessions.intent(root)
    triggers.lift("approvals")
    Effect.objects.filter(pk=effect.pk).update(**{column: "another"})
    done = effects.dispatch(effect_id=effect.pk)
    assert (done.phase, done.detail["field"]) == ("failed", column)
    assert kind.posts() == 0


@pytest.mark.one_database
@pytest.mark.parametrize(("age", "sent"), [(9.0, 1), (10.5, 0), (-1.0, 0)])
def test_the_last_look_is_at_most_ten_seconds_old(
    kind: GuardedKind, root: Root, age: float, sent: int
) -> None:
    kind.age = age
    done = effects.dispatch(effect_id=sessions.intent(root).pk)
    assert kind.posts() == sent
    if not sent:
        assert (done.phase, done.reason) == ("cancelled", "observation_stale")
        assert counts(done.consent)["post"] == 0


@pytest.mark.one_database
def test_a_kind_that_reads_its_source_has_to_say_when(
    kind: GuardedKind, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "observe", lambda act: None)
    done = effects.dispatch(effect_id=sessions.intent(root).pk)
    assert (done.phase, done.reason, kind.posts()) == ("cancelled", "not_observed", 0)


@pytest.mark.one_database
def test_only_the_session_that_opened_it_says_yes(kind: GuardedKind, root: Root) -> None:
    approval = sessions.opened(root)
    for other in (None, sessions.session(), sessions.session("bob")):
        with pytest.raises(ContactRefused) as refusal:
            sessions.approve(approval, other)
        assert (refusal.value.reason, refusal.value.field) == ("session_unavailable", "root")
    with pytest.raises(ContactRefused):
        sessions.approve(approval, root, by=Asker("operator", "bob"))
    approval.refresh_from_db()
    assert approval.state == Approval.State.PENDING
    assert sessions.approve(approval, root).phase == Effect.Phase.INTENT


@pytest.mark.one_database
def test_another_persons_session_opens_nothing(kind: GuardedKind, root: Root) -> None:
    with pytest.raises(ContactRefused):
        sessions.opened(root, by=Asker("operator", "bob"))
    with pytest.raises(ContactRefused):
        factories.opened(kind="tests.guarded")
    assert not kind.ledger.exists()


def test_no_policy_approves_it(kind: GuardedKind) -> None:
    wish = factories.request(kind="tests.guarded")
    with pytest.raises(Refused):
        approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
    kind.by_policy = True  # a kind that forgot to say so
    with pytest.raises(Refused):
        approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
    assert not Effect.objects.exists()


@pytest.mark.one_database
def test_a_revoked_session_says_no_yes(kind: GuardedKind, root: Root) -> None:
    approval = sessions.opened(root)
    roots.revoke(root_id=root.pk, by=factories.OPERATOR, reason="laptop lost")
    with pytest.raises(ContactRefused) as refusal:
        sessions.approve(approval, root)
    assert refusal.value.reason == "authority_revoked"


@pytest.mark.one_database
def test_a_review_that_ends_closes_its_goal(kind: GuardedKind, root: Root) -> None:
    first = sessions.opened(root)
    second = holds.open_for_review(hold_id=first.hold_id, by=factories.OPERATOR, root=root)
    assert first.goal is not None and second.goal is not None
    first.goal.refresh_from_db()
    assert first.goal.closed_at is not None
    approvals.reject(
        approval_id=second.pk, by=factories.OPERATOR, via="console", reason="not this one"
    )
    second.goal.refresh_from_db()
    assert second.goal.closed_at is not None


@pytest.mark.one_database
def test_a_snapshot_that_cannot_be_taken_leaves_its_reason(
    kind: GuardedKind, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Blocked("thread_too_long", field="thread")

    monkeypatch.setattr(kind, "freeze", refuse)
    with pytest.raises(Blocked):
        sessions.opened(root)
    job = Job.objects.get(kind="preview")
    assert (job.outcome, job.reason) == ("blocked", "thread_too_long")
    assert Goal.objects.get().closed_at is not None


@pytest.mark.one_database
def test_a_preview_contacts_no_more_than_it_was_granted(
    kind: GuardedKind, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    def greedy(subject: object, grant: object) -> None:
        for _ in range(9):
            grant.spend(Contact.READ)  # type: ignore[attr-defined]

    monkeypatch.setattr(kind, "freeze", greedy)
    with pytest.raises(ContactRefused) as refusal:
        sessions.opened(root)
    assert (refusal.value.reason, refusal.value.field) == ("contacts_used_up", "read")
    assert ContactBudget.objects.get(contact="read", consent__purpose="preview").spent == 2


@pytest.mark.one_database
def test_a_grant_is_spent_by_its_own_job_only(kind: GuardedKind, root: Root) -> None:
    effect, other = sessions.intent(root), sessions.intent(root)
    claimed = effects._claim(other.pk)
    assert claimed is not None and effect.consent_id is not None
    with pytest.raises(ContactRefused) as refusal:
        consents.spend_contact(consent_id=effect.consent_id, job=claimed.job, contact=Contact.READ)
    assert refusal.value.reason == "job_not_held"
    assert counts(effect.consent)["read"] == 0


@pytest.mark.one_database
def test_a_claimed_act_is_not_cancelled_by_hand(kind: GuardedKind, root: Root) -> None:
    effect = sessions.intent(root)
    assert effects._claim(effect.pk) is not None
    with pytest.raises(AlreadyDecided):
        effects.cancel(effect_id=effect.pk, by=factories.OPERATOR, reason="stop")
    untouched = sessions.intent(root)
    done = effects.cancel(effect_id=untouched.pk, by=factories.OPERATOR, reason="stop")
    assert (done.phase, kind.posts()) == ("cancelled", 0)


def test_a_lost_preview_is_finished_and_its_contacts_stay_spent(
    kind: GuardedKind, root: Root
) -> None:
    goal = goals.begin(
        root=root, by=factories.OPERATOR, kind=Goal.Kind.CONNECT, about=sessions.ACCOUNT
    )
    consent = consents.grant(
        purpose=Purpose.CONNECT,
        goal=goal,
        caps={Contact.REFRESH: 2},
        expires_at=timezone.now() + timedelta(seconds=60),
    )
    job = jobs.claim(jobs.create(kind=Job.Kind.CONNECT, consent=consent).pk)
    assert job is not None
    consents.spend_contact(consent_id=consent.pk, job=job, contact=Contact.REFRESH)
    assert jobs.settle_lost() == 0
    Job.objects.filter(pk=job.pk).update(deadline=LONG_AGO)
    assert jobs.settle_lost() == 1
    job.refresh_from_db()
    assert (job.outcome, job.reason) == ("lost", "deadline-passed")
    assert counts(consent) == {"refresh": 1}
    assert jobs.claim(job.pk) is None
    with pytest.raises(ContactRefused):
        consents.spend_contact(consent_id=consent.pk, job=job, contact=Contact.REFRESH)


#: What no writer may do, whatever code it runs.
FORBIDDEN: dict[str, Callable[[Effect], object]] = {
    "a-count-goes-down": lambda effect: ContactBudget.objects.filter(
        consent=effect.consent_id
    ).update(spent=0),
    "a-count-beyond-its-cap": lambda effect: ContactBudget.objects.filter(
        consent=effect.consent_id
    ).update(spent=F("cap") + 1),
    "a-grant-is-prolonged": lambda effect: Consent.objects.filter(pk=effect.consent_id).update(
        expires_at=timezone.now() + timedelta(days=1)
    ),
    "a-session-is-prolonged": lambda effect: Root.objects.filter(pk=effect.root_id).update(
        expires_at=timezone.now() + timedelta(days=9)
    ),
    "a-second-attempt": lambda effect: Job.objects.filter(pk=effect.job_id).update(attempts=2),
    "an-attempt-taken-back": lambda effect: Job.objects.filter(pk=effect.job_id).update(attempts=0),
    "a-job-given-on": lambda effect: Job.objects.filter(pk=effect.job_id).update(holder="other"),
    "a-deadline-put-off": lambda effect: Job.objects.filter(pk=effect.job_id).update(
        deadline=timezone.now() + timedelta(days=1)
    ),
    "a-job-begun-again": lambda effect: Job.objects.filter(pk=effect.job_id).update(
        finished_at=None
    ),
    "another-grant": lambda effect: Effect.objects.filter(pk=effect.pk).update(consent=None),
    "another-goal": lambda effect: Effect.objects.filter(pk=effect.pk).update(goal=None),
    "a-goal-reopened": lambda effect: Goal.objects.filter(pk=effect.goal_id).update(closed_at=None),
    "a-goal-reassigned-quietly": lambda effect: Goal.objects.filter(pk=effect.goal_id).update(
        principal="operator:bob"
    ),
    "a-grant-deleted": lambda effect: ContactBudget.objects.filter(
        consent=effect.consent_id
    ).delete(),
    "more-contacts-added": lambda effect: ContactBudget.objects.create(
        consent_id=effect.consent_id, contact="list", cap=3, spent=1
    ),
}


def test_the_database_itself_refuses(
    kind: GuardedKind, root: Root, subtests: pytest.Subtests
) -> None:
    triggers.install("approvals")
    effect = effects.dispatch(effect_id=sessions.intent(root).pk)
    for name, forbidden in FORBIDDEN.items():
        with (
            subtests.test(name),
            undone(),
            pytest.raises(IntegrityError),
            transaction.atomic(),
        ):
            forbidden(effect)


def test_the_database_refuses_an_act_without_its_whole_authority(
    kind: GuardedKind, root: Root
) -> None:
    triggers.install("approvals")
    assert sessions.intent(root).phase == Effect.Phase.INTENT
    approval = sessions.opened(root)
    kind.caps = {}  # a kind that forgot what it needs
    with pytest.raises(IntegrityError, match="needs a session, a goal, a job and a grant"):
        sessions.approve(approval, root)
    assert Effect.objects.count() == 1
