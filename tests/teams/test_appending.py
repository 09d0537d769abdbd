"""Events are appended as the last statement of a unit of work, in one gapless chain."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from django.db import DatabaseError, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guards import signals as guards_signals
from guards.models import Decision
from guards.services import contacts, decisions, identities, permissions, tokens
from guards.services.units import unit_of_work
from guards.types import Action, Asker, Judgement, Rule, Rwx, Subject, Verdict
from teams import chain, checks, selectors
from teams.exceptions import NotRecordable, OutsideUnitOfWork, UnknownEventKind
from teams.models import Event
from teams.sentences import sentence
from teams.services import events, verification
from teams.services.events import append_event
from teams.signals import events_appended
from tests.databases import exit_of, forked, shared
from tests.teams.conftest import Fill

SUBJECT = Subject("teams.project", "apollo")
OPERATOR = Asker("operator", "ada")


def append(**changes: Any) -> None:
    values: dict[str, Any] = {"kind": "project.changed", "subject": SUBJECT, "actor": "system"}
    append_event(**{**values, **changes})


_NAMES = st.text(max_size=4)
_PLAIN = st.none() | st.booleans() | st.integers() | st.text() | st.floats() | st.lists(st.text())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(facts=st.dictionaries(_NAMES, _PLAIN, max_size=5))
def test_plain_facts_are_written_as_the_canonical_form_has_them(facts: dict[str, Any]) -> None:
    try:
        expected: bytes | None = rfc8785.dumps(facts)
    except rfc8785.CanonicalizationError:
        expected = None
    assert events._plain(facts) in (expected, None)
    if all(type(value) is str for value in facts.values()) and "".join(facts).isascii():
        assert events._plain(facts) == expected, "the usual ones are plain"


@pytest.mark.django_db
def test_events_of_one_unit_follow_each_other_and_tie_to_the_last(fill: Fill) -> None:
    fill(2)
    with unit_of_work():
        append(facts={"b": 1, "a": "ä"})
        append()
    rows = list(Event.objects.order_by("seq"))
    assert [row.seq for row in rows] == [1, 2, 3, 4]
    assert [row.prev_hash for row in rows] == [chain.ORIGIN, *(row.hash for row in rows[:-1])]
    assert selectors.head().hash == rows[-1].hash


@pytest.mark.django_db
def test_the_hash_is_sha256_of_the_rfc_8785_form(fill: Fill) -> None:
    fill(1, project="apollo")
    row = Event.objects.get()
    document = {
        "actor": row.actor,
        "at": row.at.isoformat(timespec="microseconds"),
        "facts": row.facts,
        "kind": row.kind,
        "prev_hash": row.prev_hash,
        "project": row.project,
        "project_seq": row.project_seq,
        "seq": row.seq,
        "subject_id": row.subject_id,
        "subject_type": row.subject_type,
    }
    assert row.hash == sha256(rfc8785.dumps(document)).hexdigest()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(st.characters(exclude_categories=["Cs"])), number=st.integers(0, 2**53 - 1))
def test_the_hand_made_form_equals_the_librarys_for_any_text(text: str, number: int) -> None:
    at = "2026-11-30T09:00:00.000000+00:00"
    facts = {"t": text, "n": number}
    document = {
        "actor": text,
        "at": at,
        "facts": facts,
        "kind": "k",
        "prev_hash": chain.ORIGIN,
        "project": text,
        "project_seq": None,
        "seq": number,
        "subject_id": text,
        "subject_type": "t",
    }
    ours = chain.link(
        number, at, "k", "t", text, text, text, None, rfc8785.dumps(facts).decode(), chain.ORIGIN
    )
    assert ours == sha256(rfc8785.dumps(document)).hexdigest()


@pytest.mark.django_db
def test_each_project_counts_its_own_events(fill: Fill) -> None:
    fill(2, project="apollo")
    fill(1, project="gemini")
    fill(1)
    fill(1, project="apollo")
    counted = list(Event.objects.order_by("seq").values_list("project", "project_seq"))
    assert counted == [("apollo", 1), ("apollo", 2), ("gemini", 1), ("", None), ("apollo", 3)]


@pytest.mark.invariant(24)
@pytest.mark.django_db
def test_a_unit_that_fails_leaves_no_event_and_no_gap(fill: Fill) -> None:
    with pytest.raises(ZeroDivisionError), unit_of_work():
        append()
        1 / 0  # noqa: B018
    fill(1)
    assert [event.seq for event in selectors.events_after(0)] == [1]


@pytest.mark.django_db
def test_an_event_needs_a_unit_a_known_kind_and_plain_facts() -> None:
    with pytest.raises(OutsideUnitOfWork):
        append()
    with unit_of_work():
        with pytest.raises(UnknownEventKind):
            append(kind="nobody.knows")
        for changes in (
            {"facts": {"at": object()}},
            {"facts": {"n": 2**60}},
            {"facts": {"n": float("nan")}},
            {"facts": {"text": "x" * 20_000}},
            {"actor": "a" * 201},
            {"subject": Subject("t", "nul\0")},
            {"project": "p" * 65},
        ):
            with pytest.raises(NotRecordable):
                append(**changes)
    assert not Event.objects.exists()


@pytest.mark.invariant(24)
@pytest.mark.django_db
def test_an_act_that_cannot_be_recorded_is_undone() -> None:
    """Invariant 24: no effect without a record."""
    identity = identities.create_identity(handle="bot", email="bot@example.org", by=OPERATOR)

    def fail(**_: object) -> None:
        raise OSError("no space left on device")

    guards_signals.unit_closing.connect(fail)
    try:
        with pytest.raises(OSError):
            contacts.add_contact(
                address="a@example.org", grants={identity: Rwx(read=True)}, by=OPERATOR
            )
    finally:
        guards_signals.unit_closing.disconnect(fail)
    from guards.models import Contact

    assert not Contact.objects.exists()


@pytest.mark.fault("W22")
@pytest.mark.django_db
def test_the_database_itself_keeps_the_log(fill: Fill) -> None:
    fill(2)
    for act in (
        lambda: Event.objects.filter(seq=1).update(actor="someone else"),
        lambda: Event.objects.filter(seq=1).delete(),
        lambda: Event.objects.filter(seq=1).update(facts={}),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            act()
    assert verification.verify().ok


@pytest.mark.django_db
def test_what_guards_announces_is_recorded() -> None:
    identity = identities.create_identity(handle="bot", email="bot@example.org", by=OPERATOR)
    contact = contacts.add_contact(address="a@example.org", by=OPERATOR)
    permissions.grant(identity=identity, contact=contact, rwx=Rwx(read=True), by=OPERATOR)
    token, _ = tokens.mint(label="reader", scopes=["events:read"], by=OPERATOR)
    tokens.revoke(token=token, by=OPERATOR)
    decisions.record_decision(
        judgement=Judgement(Action.SURFACE, Verdict.HOLD, Rule.NO_PERMISSION),
        asker=Asker("system"),
        subject=Subject("mail.message", "7"),
    )
    guards_signals.task_refused.send(sender=None, path="os.system", where="queue")
    told = {event.kind: event for event in Event.objects.all()}
    assert {
        "permission.changed",
        "token.minted",
        "token.revoked",
        "decision.made",
        "queue.refused",
    } <= set(told)
    made = told["decision.made"]
    assert (made.subject_type, made.subject_id) == ("mail.message", "7")
    assert made.facts["decision"] == Decision.objects.get().pk
    assert told["permission.changed"].facts["rwx"] == "r--"
    assert told["queue.refused"].facts["path"] == "os.system"


@pytest.mark.fault("sister-2")
def test_a_log_that_nobody_writes_does_not_start() -> None:
    assert checks.recorders_are_connected() == []
    receivers, guards_signals.decided.receivers = guards_signals.decided.receivers, []
    try:
        assert [found.id for found in checks.recorders_are_connected()] == ["teams.E001"]
    finally:
        guards_signals.decided.receivers = receivers


@pytest.mark.django_db
def test_an_event_says_itself_in_a_sentence() -> None:
    with unit_of_work():
        append(facts={"slug": "apollo\nsecond line"}, actor="operator:ada")
        append(facts={})
    first, second = Event.objects.order_by("seq")
    assert sentence(first) == "ada changed the project apollo second line."
    assert sentence(second) == "system changed the project —."
    assert sentence(Event(kind="gone.kind", subject_type="a.b", subject_id="1")) == (
        "gone.kind: a.b 1"
    )


def test_a_sentence_names_lists_and_rows_as_a_person_would() -> None:
    minted = Event(
        kind="token.minted",
        actor="operator:ada",
        subject_type="guards.apitoken",
        subject_id="7",
        facts={"prefix": ["cs", "ab"]},
    )
    assert sentence(minted) == "ada minted the API token cs, ab…."
    asked = Event(
        kind="approval.pending",
        actor="identity:ada",
        subject_type="approvals.approval",
        subject_id="0b9cf1de-0d14-4b3a-9a52-1a0c6b3d2f10",
        facts={},
    )
    assert sentence(asked) == "Exactly what would leave was frozen for ada: approval 0b9cf1de."


@pytest.mark.django_db
def test_every_kind_that_is_recorded_here_can_be_said() -> None:
    from teams.registry import event_kinds

    for kind in event_kinds():
        shown = sentence(Event(kind=kind.name, subject_type="a.b", subject_id="1", facts={}))
        assert "{" not in shown


@pytest.mark.django_db
def test_the_announcement_comes_after_the_commit(
    fill: Fill, django_capture_on_commit_callbacks: Any
) -> None:
    seen: list[tuple[int, int]] = []

    def listen(first: int, last: int, **_: object) -> None:
        seen.append((first, last))

    events_appended.connect(listen)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            with unit_of_work():
                append()
                append()
            assert seen == []
    finally:
        events_appended.disconnect(listen)
    assert seen == [(1, 2)]


@pytest.mark.invariant(24)
@pytest.mark.fault("queue-06")
@pytest.mark.django_db(transaction=True)
def test_many_writers_make_one_gapless_chain(fill: Fill, tmp_path: Path) -> None:
    start, go = os.pipe()
    with shared(tmp_path):

        def work() -> None:
            os.read(start, 1)
            fill(15, project="apollo")

        writers = [forked(work) for _ in range(4)]
        os.write(go, b"....")
        assert [exit_of(pid) for pid in writers] == [0, 0, 0, 0]
        report = verification.verify()
        assert (report.ok, report.events) == (True, 60)
        numbers = Event.objects.order_by("seq").values_list("project_seq", flat=True)
        assert list(numbers) == list(range(1, 61))


def test_the_channel_is_a_plain_name() -> None:
    assert events.CHANNEL.isidentifier()
