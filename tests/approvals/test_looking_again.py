"""Looking again at an unknown outcome: what is found is added, what is unknown stays unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, transaction
from django.db.models import F
from django.test import Client

from approvals import registry, sentences
from approvals.clock import database_now
from approvals.exceptions import ContactRefused, NotAPerson
from approvals.models import (
    Connection,
    Consent,
    ContactBudget,
    Effect,
    Goal,
    Job,
    Observation,
    Root,
)
from approvals.services import consents as consent_services
from approvals.services import effects, goals, jobs, recovery, roots
from approvals.types import Contact, ContactOutcome, ContactResult, Purpose
from guards.exceptions import Conflict, InvalidInput, NotFound
from guards.services import tokens
from guards.types import Asker
from teams.models import Event
from teams.services import verification
from tests.approvals import factories, looking
from tests.approvals.looking import CAPS, FOUND, LookingKind, columns, wish
from tests.approvals.points import undone

pytestmark = pytest.mark.django_db

ADA, BEA = factories.OPERATOR, Asker("operator", "bea")


@pytest.fixture
def kind(tmp_path: Path) -> Iterator[LookingKind]:
    """A kind that needs no authority beyond its approval, as mail by SMTP."""
    looking_kind = LookingKind(tmp_path / "contacts")
    registry.register_kind(looking_kind)
    yield looking_kind
    registry.forget_kind(looking_kind.name)


@pytest.fixture
def exact(kind: LookingKind) -> LookingKind:
    """The same under authority, with a read connection, as the Gmail profile."""
    kind.caps, kind.looks = CAPS, looking.EXACT_LOOK
    kind.bound = looking.bound(looking.connection())
    return kind


@pytest.fixture
def root(db: None) -> Root:
    """The session in which everything happens."""
    return looking.session()


def ask(effect: Effect, root: Root | None, **changes: Any) -> Job:
    values: dict[str, Any] = {"by": ADA, "request_id": wish(), **changes}
    return recovery.look_again(effect_id=effect.pk, root=root, **values)


def look(effect: Effect, root: Root | None, **changes: Any) -> Job:
    return recovery.run(job_id=ask(effect, root, **changes).pk)


def afresh(effect: Effect, root: Root) -> tuple[Effect, Root]:
    """The rows as they are, for a case that begins where the one before it was undone."""
    return Effect.objects.get(pk=effect.pk), Root.objects.get(pk=root.pk)


def everything(effect: Effect) -> dict[str, Mapping[str, Any]]:
    """The original with all that belongs to it, but for the one column that a look may raise."""
    effect = Effect.objects.get(pk=effect.pk)
    rows = {
        "effect": {k: v for k, v in columns(effect).items() if k != "revision"},
        "job": columns(effect.job),
        "approval": columns(effect.approval),
    }
    for name in ("root", "goal", "consent"):
        row = getattr(effect, name)
        if row is not None:
            rows[name] = columns(row)
    if effect.consent is not None:
        rows["budgets"] = {b.contact: b.spent for b in effect.consent.budgets.all()}
    return rows


@pytest.mark.invariant(20)
def test_one_strict_match_is_observed_and_the_original_keeps_every_column_but_its_revision(
    exact: LookingKind, root: Root
) -> None:
    effect = looking.unknown(exact, root)
    before, revision = everything(effect), effect.revision
    job = look(effect, root)
    effect.refresh_from_db()
    assert everything(effect) == before
    assert effect.revision == revision + 1
    assert (job.outcome, job.reason) == ("verified_sent_observation", "one-strict-match")
    (seen,) = effect.observations.all()
    assert (seen.outcome, seen.observer, seen.job_id) == (job.outcome, str(ADA), job.pk)
    assert seen.detail == {"candidates": 1, "reason": "one-strict-match"}
    assert exact.looked() == [str(contact) for contact in exact.looks]
    assert exact.posts() == 1


@pytest.mark.one_database
def test_a_look_has_a_goal_a_finite_grant_and_a_job_of_its_own(
    exact: LookingKind, root: Root
) -> None:
    effect = looking.unknown(exact, root)
    asked_at = database_now()
    job = ask(effect, root)
    consent = job.consent
    assert consent is not None and consent.pk != effect.consent_id
    assert (consent.purpose, consent.effect_id) == (Purpose.RECOVER, effect.pk)
    assert consent.goal.kind == Goal.Kind.LOOK_AGAIN and consent.goal_id != effect.goal_id
    assert (consent.root_id, consent.goal.principal) == (root.pk, str(ADA))
    caps = {budget.contact: budget.cap for budget in consent.budgets.all()}
    assert caps == {str(c): n for c, n in CAPS[Purpose.RECOVER].items()}
    assert consent.expires_at - asked_at <= timedelta(seconds=121)
    assert len(consent.request_digest) == 64
    done = recovery.run(job_id=job.pk)
    assert done.deadline is not None and done.claimed_at is not None
    assert done.deadline - done.claimed_at <= timedelta(seconds=120)
    assert (done.attempts, done.fence) == (1, 1)
    assert done.quiesced_at is not None and done.finished_at is not None
    assert Goal.objects.get(pk=consent.goal_id).closed_at is not None


NO_STRICT_MATCHES: tuple[tuple[Any, str], ...] = (
    (ContactResult(ContactOutcome.UNKNOWN, "not_found"), "not_found"),
    (ContactResult(ContactOutcome.UNKNOWN, "several_candidates"), "several_candidates"),
    (ContactResult(ContactOutcome.UNKNOWN, "timed_out"), "timed_out"),
    # Neither of these is a proof, whatever a kind may mean by it.
    (ContactResult(ContactOutcome.ACCEPTED, "smtp-250"), "smtp-250"),
    (ContactResult(ContactOutcome.FAILED, "smtp-550"), "smtp-550"),
    (None, "nothing_to_look_at"),
    (RuntimeError("the library broke"), "look-raised"),
    (ContactRefused("contacts_used_up", field="get"), "contacts_used_up"),
)


@pytest.mark.one_database
def test_whatever_is_no_strict_match_is_an_unknown_observation(
    kind: LookingKind, root: Root, subtests: pytest.Subtests
) -> None:
    effect = looking.unknown(kind)
    before = everything(effect)
    for found, reason in NO_STRICT_MATCHES:
        with subtests.test(reason), undone():
            kind.found = found
            job = look(effect, root)
            assert (job.outcome, job.reason) == ("unknown_observation", reason)
            (seen,) = effect.observations.all()
            assert (seen.outcome, seen.detail["reason"]) == ("unknown_observation", reason)
            assert everything(effect) == before
            assert kind.posts() == 1


def test_the_same_wish_is_one_look_and_a_new_wish_is_a_new_grant(
    kind: LookingKind, root: Root
) -> None:
    effect = looking.unknown(kind)
    request_id = wish()
    first = ask(effect, root, request_id=request_id)
    assert ask(effect, root, request_id=str(request_id)).pk == first.pk
    done = recovery.run(job_id=first.pk)
    for _ in range(2):
        assert recovery.run(job_id=first.pk) == done
    assert ask(effect, root, request_id=request_id).outcome == done.outcome
    assert len(kind.looked()) == len(kind.looks)
    second = look(effect, root)
    assert (second.pk, second.consent_id) != (first.pk, first.consent_id)
    assert Consent.objects.filter(purpose="recover", effect=effect).count() == 2
    assert effect.observations.count() == 2
    assert len(kind.looked()) == 2 * len(kind.looks)


@pytest.mark.one_database
def test_a_wish_is_not_used_for_something_else(kind: LookingKind, root: Root) -> None:
    one, other = looking.unknown(kind), looking.unknown(kind)
    request_id = wish()
    ask(one, root, request_id=request_id)
    for effect, session, by in ((other, root, ADA), (one, looking.session("bea"), BEA)):
        with pytest.raises(Conflict) as refused:
            ask(effect, session, by=by, request_id=request_id)
        assert refused.value.field == "request_id"
    with pytest.raises(InvalidInput):
        ask(one, root, request_id="twice")
    with pytest.raises(NotFound):
        recovery.look_again(effect_id=uuid4(), by=ADA, root=root, request_id=wish())
    with pytest.raises(NotFound):
        recovery.run(job_id=one.job_id)


@pytest.mark.one_database
def test_only_a_person_looks(kind: LookingKind, root: Root) -> None:
    effect = looking.unknown(kind)
    with pytest.raises(NotAPerson):
        ask(effect, root, by=factories.AGENT)
    assert kind.looked() == []


# --- blocked: each with its own reason, and nobody is contacted ---


def _expire(effect: Effect, root: Root, kind: LookingKind) -> None:
    Root.objects.filter(pk=root.pk).update(idle_until=database_now() - timedelta(seconds=1))


def _end(effect: Effect, root: Root, kind: LookingKind) -> None:
    roots.end(root_id=root.pk, by=ADA)


def _revoke(effect: Effect, root: Root, kind: LookingKind) -> None:
    roots.revoke(root_id=root.pk, by=ADA)


def _delete_goal(effect: Effect, root: Root, kind: LookingKind) -> None:
    assert effect.goal is not None
    goals.delete(effect.goal)


def _reassign_goal(effect: Effect, root: Root, kind: LookingKind) -> None:
    Goal.objects.filter(pk=effect.goal_id).update(principal=str(BEA), revision=F("revision") + 1)


def _revoke_connection(effect: Effect, root: Root, kind: LookingKind) -> None:
    Connection.objects.update(state=Connection.State.REVOKED, revoked_at=database_now())


def _break_connection(effect: Effect, root: Root, kind: LookingKind) -> None:
    Connection.objects.update(state=Connection.State.NEEDS_RECONNECT)


def _change_connection(effect: Effect, root: Root, kind: LookingKind) -> None:
    (connection,) = Connection.objects.all()
    connection.revision += 1
    connection.save()
    kind.bound = looking.bound(connection)


def _replace_connection(effect: Effect, root: Root, kind: LookingKind) -> None:
    kind.bound = looking.bound(looking.connection())


#: What ends the right to look, and the stable word for it.
ENDINGS: dict[str, tuple[Callable[[Effect, Root, LookingKind], None], str]] = {
    "the session expired": (_expire, "session_unavailable"),
    "the session ended": (_end, "session_unavailable"),
    "the session was revoked": (_revoke, "authority_revoked"),
    "the goal was deleted": (_delete_goal, "goal_deleted"),
    "the goal was reassigned": (_reassign_goal, "goal_reassigned"),
    "the read connection was revoked": (_revoke_connection, "connection_unavailable"),
    "the read connection needs reconnecting": (_break_connection, "connection_unavailable"),
}
#: What differs from the original, before a grant could bind it.
OTHERS = {
    "the read connection changed": (_change_connection, "connection_changed"),
    "the read connection is another": (_replace_connection, "connection_changed"),
}


def at_the_last_contact(
    end: Callable[[Effect, Root, LookingKind], None],
    effect: Effect,
    root: Root,
    kind: LookingKind,
    contact: Contact,
) -> None:
    if contact is Contact.GET:
        end(effect, root, kind)


@pytest.mark.one_database
def test_nobody_is_contacted_and_no_job_is_made_where(
    exact: LookingKind, root: Root, subtests: pytest.Subtests
) -> None:
    unknown, bound = looking.unknown(exact, root), exact.bound
    for ending, (end, reason) in (ENDINGS | OTHERS).items():
        with subtests.test(ending), undone():
            effect, session = afresh(unknown, root)
            exact.bound = bound
            end(effect, session, exact)
            expected = recovery.why_not(effect_id=effect.pk, by=ADA, root=session)
            with pytest.raises(ContactRefused) as refused:
                ask(effect, session)
            assert refused.value.reason == reason
            assert expected is not None and expected.reason == reason
            assert not Job.objects.filter(kind=Job.Kind.RECOVER).exists()
            assert not Goal.objects.filter(kind=Goal.Kind.LOOK_AGAIN).exists()
            assert exact.looked() == [] and exact.posts() == 1


@pytest.mark.one_database
def test_a_look_that_was_granted_contacts_nobody_once(
    exact: LookingKind, root: Root, subtests: pytest.Subtests
) -> None:
    unknown, bound = looking.unknown(exact, root), exact.bound
    for ending, (end, reason) in ENDINGS.items():
        with subtests.test(ending), undone():
            effect, session = afresh(unknown, root)
            exact.bound = bound
            job = ask(effect, session)
            end(effect, session, exact)
            before = columns(effect)
            done = recovery.run(job_id=job.pk)
            assert (done.outcome, done.reason) == ("blocked", reason)
            assert columns(effect) == before
            assert not Observation.objects.exists()
            assert exact.looked() == []


@pytest.mark.one_database
def test_what_was_seen_is_not_written_down_once(
    exact: LookingKind, root: Root, subtests: pytest.Subtests
) -> None:
    """The right ended between the last contact and the record: spent, and nothing is told."""
    unknown, bound = looking.unknown(exact, root), exact.bound
    exact.looks = looking.LOOK
    for ending, (end, reason) in ENDINGS.items():
        with subtests.test(ending), undone():
            effect, session = afresh(unknown, root)
            exact.bound = bound
            exact.during = partial(at_the_last_contact, end, effect, session, exact)
            before = columns(effect)
            done = look(effect, session)
            assert (done.outcome, done.reason) == ("lost", reason)
            assert columns(effect) == before
            assert not Observation.objects.exists()
            spent = ContactBudget.objects.filter(consent=done.consent).exclude(spent=0).count()
            assert spent == len(exact.looks)
            # By then somebody was: only a look that was not made at all says that nobody was.
            assert "was contacted" not in sentences.look_sentence(reason)
            assert "nothing was contacted" in sentences.look_sentence("blocked")


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda job: consent_services.revoke(consent_id=job.consent_id, by=ADA),
            "authority_revoked",
        ),
        (lambda job: goals.close(job.consent.goal), "goal_closed"),
        (lambda job: goals.delete(job.consent.goal), "goal_deleted"),
        (lambda job: Connection.objects.update(revision=9), "connection_changed"),
    ],
)
def test_the_looks_own_authority_is_needed_for_each_contact(
    exact: LookingKind, root: Root, change: Callable[[Job], object], reason: str
) -> None:
    effect = looking.unknown(exact, root)
    before, after = ask(effect, root), wish()
    change(before)
    done = recovery.run(job_id=before.pk)
    assert (done.outcome, done.reason) == ("blocked", reason)
    assert exact.looked() == []
    if reason == "connection_changed":
        return
    exact.during = lambda contact: (
        contact is Contact.LIST and change(Job.objects.get(consent__goal=after))
    )
    done = look(effect, root, request_id=after)
    assert (done.outcome, done.reason) == ("lost", reason)
    assert exact.looked()[-1] == "list"
    assert not Observation.objects.exists()


@pytest.mark.one_database
def test_another_session_is_never_adopted_for_an_act_under_authority(
    exact: LookingKind, root: Root
) -> None:
    """Neither another person's nor a later one of the same person."""
    effect = looking.unknown(exact, root)
    bea, later = looking.session("bea"), looking.session("ada")
    for session, by in ((bea, BEA), (later, ADA), (root, BEA), (bea, ADA), (None, ADA)):
        with pytest.raises(ContactRefused) as refused:
            ask(effect, session, by=by)
        assert refused.value.reason == "session_unavailable"
    roots.end(root_id=root.pk, by=ADA)
    with pytest.raises(ContactRefused) as refused:
        ask(effect, later)
    assert refused.value.reason == "session_unavailable"
    assert exact.looked() == []


@pytest.mark.one_database
def test_a_revoked_session_is_told_apart_in_a_later_one(exact: LookingKind, root: Root) -> None:
    effect = looking.unknown(exact, root)
    roots.revoke(root_id=root.pk, by=ADA)
    with pytest.raises(ContactRefused) as refused:
        ask(effect, looking.session("ada"))
    assert refused.value.reason == "authority_revoked"


@pytest.mark.one_database
def test_any_operator_looks_at_mail_under_a_live_session_of_his_own(
    kind: LookingKind, root: Root
) -> None:
    effect = looking.unknown(kind, root)
    roots.revoke(root_id=root.pk, by=ADA)
    bea = looking.session("bea")
    with pytest.raises(ContactRefused) as refused:
        ask(effect, bea, by=ADA)
    assert (refused.value.reason, refused.value.field) == ("session_unavailable", "principal")
    job = look(effect, bea, by=BEA)
    assert job.outcome == "verified_sent_observation"
    assert effect.observations.get().observer == str(BEA)
    roots.end(root_id=bea.pk, by=BEA)
    with pytest.raises(ContactRefused) as refused:
        ask(effect, bea, by=BEA)
    assert refused.value.reason == "session_unavailable"


@pytest.mark.one_database
def test_the_goal_may_be_closed_and_the_deadline_over(exact: LookingKind, root: Root) -> None:
    effect = looking.unknown(exact, root)
    assert effect.goal is not None
    goals.close(effect.goal)
    past = database_now() - timedelta(hours=1)
    Job.objects.filter(pk=effect.job_id).update(deadline=past)
    before = everything(effect)
    assert look(effect, root).outcome == "verified_sent_observation"
    assert everything(effect) == before


@pytest.mark.one_database
@pytest.mark.parametrize("outcome", ["accepted", "verified", "failed"])
def test_a_certain_outcome_is_not_looked_at(kind: LookingKind, root: Root, outcome: str) -> None:
    kind.result = ContactResult(ContactOutcome(outcome), "certain")
    effect = effects.dispatch(effect_id=factories.intent(kind=kind.name).pk)
    assert effect.phase == outcome
    with pytest.raises(ContactRefused) as refused:
        ask(effect, root)
    assert refused.value.reason == "effect_not_unknown"
    assert kind.looked() == []


@pytest.mark.one_database
def test_what_a_living_worker_may_still_send_is_not_looked_at(
    kind: LookingKind, root: Root
) -> None:
    """The sweep called it unknown at its deadline; its process lives, its transport may be open."""
    effect = factories.intent(kind=kind.name)
    job = jobs.claim(effect.job_id)
    assert job is not None
    now = database_now()
    Effect.objects.filter(pk=effect.pk).update(phase="marked", contact_marked_at=now)
    Effect.objects.filter(pk=effect.pk).update(phase="unknown", settled_at=now)
    assert _refusal(effect, root) == "act_still_running"
    Job.objects.filter(pk=job.pk).update(deadline=now - timedelta(seconds=1))
    assert _refusal(effect, root) == "transport_unsettled"
    jobs.finish(job, outcome="unknown", reason="deadline-passed")
    assert _refusal(effect, root) == "transport_unsettled"
    assert kind.looked() == []
    jobs.quiesce(job)
    assert look(effect, root).outcome == "verified_sent_observation"


def test_one_look_at_a_time(kind: LookingKind, root: Root) -> None:
    effect = looking.unknown(kind)
    first = ask(effect, root)
    assert _refusal(effect, root) == "look_running"
    recovery.run(job_id=first.pk)
    assert _refusal(effect, root) is None
    assert look(effect, root).outcome == "verified_sent_observation"


def _refusal(effect: Effect, root: Root) -> str | None:
    refused = recovery.why_not(effect_id=effect.pk, by=ADA, root=root)
    if refused is not None:
        with pytest.raises(ContactRefused) as again:
            ask(effect, root)
        assert again.value.reason == refused.reason
    return refused.reason if refused else None


# --- counts, late records, events ---


@pytest.mark.one_database
def test_a_look_never_posts_and_never_goes_past_its_figures(kind: LookingKind, root: Root) -> None:
    kind.caps = MappingProxyType(
        {Purpose.RECOVER: {Contact.POST: 1, Contact.LIST: 1, Contact.GET: 5}}
    )
    effect = looking.unknown(kind)
    kind.looks = (Contact.POST,)
    job = look(effect, root)
    assert (job.outcome, job.reason) == ("unknown_observation", "contacts_used_up")
    assert (kind.looked(), kind.posts()) == ([], 1)
    kind.looks = (Contact.LIST, *[Contact.GET] * 6)
    assert look(effect, root).reason == "contacts_used_up"
    assert kind.looked() == ["list", *["get"] * 5]


@pytest.mark.one_database
def test_a_kind_without_figures_of_its_own_gets_one_list_and_five_candidates(
    kind: LookingKind, root: Root
) -> None:
    job = ask(looking.unknown(kind), root)
    assert job.consent is not None
    assert {b.contact: b.cap for b in job.consent.budgets.all()} == {"list": 1, "get": 5}


def test_an_effect_that_moved_meanwhile_gets_no_observation(kind: LookingKind, root: Root) -> None:
    effect = looking.unknown(kind)
    kind.during = lambda contact: Effect.objects.update(revision=50)
    kind.looks = (Contact.LIST,)
    job = look(effect, root)
    assert (job.outcome, job.reason) == ("lost", "effect_moved_on")
    assert not Observation.objects.exists()


def test_a_record_that_comes_after_the_deadline_is_not_written(
    kind: LookingKind, root: Root
) -> None:
    effect = looking.unknown(kind)
    kind.looks = (Contact.LIST,)
    kind.during = lambda contact: Job.objects.filter(kind="recover").update(
        deadline=database_now() - timedelta(seconds=1)
    )
    job = look(effect, root)
    assert (job.outcome, job.reason) == ("lost", "deadline_passed")
    assert not Observation.objects.exists()


def test_a_look_that_nobody_began_in_time_is_lost_and_another_may_be_granted(
    kind: LookingKind, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = looking.unknown(kind)
    monkeypatch.setattr(jobs, "DEADLINE_SECONDS", 0)
    late = ask(effect, root)
    monkeypatch.undo()
    assert recovery.enqueue_due(overdue=timedelta(0)) == 0
    assert recovery.run(job_id=late.pk).reason == "consent_expired"
    monkeypatch.setattr(jobs, "DEADLINE_SECONDS", 0)
    never = ask(effect, root)
    monkeypatch.undo()
    assert recovery.settle_lost() == 1
    never.refresh_from_db()
    assert (never.outcome, never.reason) == ("lost", "never-begun")
    assert kind.looked() == []
    assert look(effect, root).outcome == "verified_sent_observation"


@pytest.mark.one_database
def test_a_look_that_waits_is_put_onto_the_queue_again(kind: LookingKind, root: Root) -> None:
    ask(looking.unknown(kind), root)
    assert recovery.enqueue_due() == 0
    assert recovery.enqueue_due(overdue=timedelta(0)) == 1


@pytest.mark.one_database
def test_the_log_says_who_looked_under_which_grant_and_what_came_of_it(
    kind: LookingKind, root: Root
) -> None:
    effect = looking.unknown(kind)
    job = look(effect, root)
    asked, looked = Event.objects.filter(
        subject_id=str(effect.pk), kind__startswith="effect.look"
    ).order_by("seq")
    assert (asked.kind, looked.kind) == ("effect.look_asked", "effect.looked_at")
    assert asked.actor == looked.actor == str(ADA)
    assert asked.facts["grant"] == looked.facts["grant"] == str(job.consent_id)
    assert (looked.facts["job"], looked.facts["outcome"]) == (str(job.pk), job.outcome)
    assert FOUND.reason == looked.facts["reason"]
    assert verification.verify().ok


# --- what is told ---


@pytest.mark.one_database
def test_the_api_shows_job_and_grant_of_what_was_seen_and_never_looks(
    kind: LookingKind, root: Root
) -> None:
    effect = looking.unknown(kind)
    job = look(effect, root)
    _, secret = tokens.mint(label="reader", scopes=["approvals:read"], by=ADA)
    client = Client(headers={"authorization": f"Bearer {secret}"})
    (seen,) = client.get(f"/api/v1/effects/{effect.pk}").json()["observations"]
    assert (seen["outcome"], seen["observer"]) == ("verified_sent_observation", str(ADA))
    assert (seen["job"], seen["grant"]) == (str(job.pk), str(job.consent_id))
    refused = client.post(f"/api/v1/effects/{effect.pk}/look")
    assert (refused.status_code, refused.json()["rule"]) == (403, "session-needed")
    assert client.post(f"/api/v1/effects/{uuid4()}/look").status_code == 404
    assert Job.objects.filter(kind="recover").count() == 1


@pytest.mark.parametrize(
    "word", sorted({reason for _, reason in (ENDINGS | OTHERS).values()} | recovery.WORDS)
)
def test_each_word_about_a_look_has_a_sentence(word: str) -> None:
    assert sentences.look_sentence(word).endswith(".")


@pytest.mark.parametrize(
    "rewritten",
    [{"reason": "smtp-250"}, {"detail": {"code": 250}}, {"settled_at": database_now}],
)
def test_the_database_keeps_the_result_of_what_is_unknown(
    kind: LookingKind, rewritten: dict[str, Any]
) -> None:
    effect = looking.unknown(kind)
    values = {name: value() if callable(value) else value for name, value in rewritten.items()}
    with pytest.raises(DatabaseError), transaction.atomic():
        Effect.objects.filter(pk=effect.pk).update(**values)
    assert Effect.objects.filter(pk=effect.pk).update(revision=9) == 1


@pytest.mark.one_database
def test_an_operator_whose_login_was_closed_has_no_authority(
    exact: LookingKind, root: Root
) -> None:
    effect = looking.unknown(exact, root)
    job = ask(effect, root)
    root.user.is_active = False
    root.user.save()
    assert recovery.run(job_id=job.pk).reason == "authority_revoked"
    assert _refusal(effect, root) == "authority_revoked"
    assert exact.looked() == []
