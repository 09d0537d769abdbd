"""What the database refuses, whoever writes: shown with raw SQL, and shown to allow the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction

from guards import registry, selectors, triggers
from guards.models import CandidateKey, Contact, Decision, ReplayEntry
from guards.services import decisions
from guards.types import SYSTEM, Action, Judgement, Rule, Subject, Verdict
from tests.guards.factories import (
    AliasFactory,
    ContactFactory,
    IdentityFactory,
    PermissionFactory,
)


def run(sql: str, *values: object) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, values)


@contextmanager
def refused(match: str) -> Iterator[None]:
    with pytest.raises(IntegrityError, match=match):
        yield


def decision() -> Decision:
    return decisions.record_decision(
        judgement=Judgement(Action.READ, Verdict.DENY, Rule.NO_PERMISSION),
        asker=SYSTEM,
        subject=Subject("mail.message", "7"),
    )


@pytest.mark.django_db
@pytest.mark.fault("W22")
def test_a_decision_can_be_written_and_neither_changed_nor_deleted() -> None:
    row = decision()
    for sql in (
        "UPDATE guards_decision SET verdict = 'allow' WHERE id = %s",
        "UPDATE guards_decision SET evidence = '{}' WHERE id = %s",
        "DELETE FROM guards_decision WHERE id = %s",
    ):
        with refused("guards_decision is append-only"):
            run(sql, row.pk)
    row.refresh_from_db()
    assert row.verdict == "deny"
    decision()
    assert Decision.objects.count() == 2


@pytest.mark.django_db
@pytest.mark.fault("W22")
def test_the_orm_meets_the_same_refusal() -> None:
    row = decision()
    row.verdict = "allow"
    with refused("append-only"), transaction.atomic():
        row.save()
    with refused("append-only"), transaction.atomic():
        Decision.objects.all().delete()
    with refused("append-only"), transaction.atomic():
        Decision.objects.update(rule="loop")


@pytest.mark.django_db
def test_the_replay_ledger_forgets_nothing() -> None:
    entry = ReplayEntry.objects.create(key="0" * 64, subject_type="x", subject_id="1")
    for sql in (
        "UPDATE guards_replayentry SET key = 'x' WHERE id = %s",
        "DELETE FROM guards_replayentry WHERE id = %s",
    ):
        with refused("guards_replayentry is append-only"):
            run(sql, entry.pk)


WAYS_AROUND = {
    "sqlite": [
        ("INSERT OR REPLACE INTO guards_replayentry (id, key, subject_type, subject_id, at) "
         "SELECT id, 'other', 'x', '2', at FROM guards_replayentry"),
        ("REPLACE INTO guards_replayentry (id, key, subject_type, subject_id, at) "
         "SELECT id + 1, key, 'x', '2', at FROM guards_replayentry"),
    ],
    "postgresql": ["TRUNCATE guards_replayentry", "TRUNCATE guards_identity CASCADE"],
}  # fmt: skip


@pytest.mark.django_db
def test_each_databases_own_ways_around_a_delete_are_closed() -> None:
    entry = ReplayEntry.objects.create(key="0" * 64, subject_type="x", subject_id="1")
    decision()
    if connection.vendor == "postgresql":
        run("SET CONSTRAINTS ALL IMMEDIATE")  # else a table with pending checks is not truncated
    for sql in WAYS_AROUND[connection.vendor]:
        with refused("append-only"):
            run(sql)
    entry.refresh_from_db()
    assert entry.subject_id == "1"
    assert Decision.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("column", ["write", "execute"])
def test_a_pattern_contact_gets_no_more_than_read_on_the_permission_row(column: str) -> None:
    pattern = ContactFactory(address="*@example.org")
    row = PermissionFactory(contact=pattern)
    set_to_true = f'UPDATE guards_permission SET "{column}" = TRUE WHERE id = %s'  # noqa: S608
    with refused("read permission"):
        run(set_to_true, row.pk)
    with refused("read permission"), transaction.atomic():
        PermissionFactory(contact=pattern, **{column: True})
    exact = PermissionFactory()
    run(set_to_true, exact.pk)


@pytest.mark.django_db
def test_a_permission_is_not_moved_over_to_a_pattern() -> None:
    pattern = ContactFactory(address="*@example.org")
    row = PermissionFactory(write=True)
    with refused("read permission"):
        run("UPDATE guards_permission SET contact_id = %s WHERE id = %s", pattern.pk, row.pk)


@pytest.mark.django_db
def test_a_contact_with_rights_aliases_or_a_key_does_not_become_a_pattern() -> None:
    entitled = PermissionFactory(execute=True).contact
    aliased = AliasFactory().contact
    pinned = ContactFactory()
    pinned.pins.create(fingerprint="A" * 40, public_key=b"key", pinned_by="x")
    sql = "UPDATE guards_contact SET address = %s, is_pattern = %s WHERE id = %s"
    for number, contact in enumerate((entitled, aliased, pinned)):
        with refused("cannot become a pattern"):
            run(sql, f"*@x{number}.example", True, contact.pk)
    reader = PermissionFactory().contact
    run(sql, "*@x.example", True, reader.pk)


@pytest.mark.django_db
def test_the_pattern_flag_cannot_lie() -> None:
    contact = ContactFactory()
    for address, flag in ((contact.address, True), ("*@x.example", False)):
        with pytest.raises(IntegrityError):
            run(
                "UPDATE guards_contact SET address = %s, is_pattern = %s WHERE id = %s",
                address,
                flag,
                contact.pk,
            )


@pytest.mark.django_db
def test_an_address_stands_once_in_the_whole_book() -> None:
    alias = AliasFactory(address="ada@work.example")
    contact = ContactFactory()
    with refused("alias in the address book"):
        run("UPDATE guards_contact SET address = %s WHERE id = %s", alias.address, contact.pk)
    with refused("alias in the address book"), transaction.atomic():
        ContactFactory(address=alias.address)
    with refused("in the address book already"):
        run("UPDATE guards_contactalias SET address = %s", contact.address)
    with refused("in the address book already"), transaction.atomic():
        AliasFactory(address=contact.address)
    run("UPDATE guards_contactalias SET address = 'ada@home.example'")


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["Ada@example.org", "*@example.org"])
def test_an_alias_is_exact_and_lower_case(address: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        AliasFactory(address=address)


@pytest.mark.django_db
def test_an_address_is_lower_case() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        ContactFactory(address="Ada@example.org")


@pytest.mark.django_db
def test_a_pattern_holds_neither_alias_nor_key() -> None:
    pattern = ContactFactory(address="*@example.org")
    with refused("no aliases"), transaction.atomic():
        AliasFactory(contact=pattern)
    with refused("no pinned key"), transaction.atomic():
        pattern.pins.create(fingerprint="A" * 40, public_key=b"key", pinned_by="x")


#: How each database is asked to delete whatever stands in the way.
OR_REPLACE = {"sqlite": " OR REPLACE", "postgresql": ""}


@pytest.mark.django_db
@pytest.mark.fault("W22")
def test_nothing_replaces_a_row_by_a_key_that_holds_for_some_rows_only() -> None:
    columns = "kind, at, subject_type, subject_id, actor, project, project_seq, facts, prev_hash"
    insert = (
        f"INSERT{OR_REPLACE[connection.vendor]} INTO teams_event (seq, hash, {columns}) VALUES "
    )
    rest = "'a.b', '2026-11-30', 'a.b', '1', 'x', %s, %s, '{}', ''"
    run(f"{insert} (901, 'h1', {rest})", "apollo", 1)
    with refused("teams_event is append-only|event_project_seq_once"):
        run(f"{insert} (902, 'h2', {rest})", "apollo", 1)
    run(f"{insert} (903, 'h3', {rest})", "apollo", 2)
    run(f"{insert} (904, 'h4', {rest})", "", 0)
    run(f"{insert} (905, 'h5', {rest})", "", 0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM teams_event WHERE seq > 900")
        assert cursor.fetchone()[0] == 4


@pytest.mark.django_db
@pytest.mark.fault("W22")
def test_no_update_replaces_another_row_of_a_table_with_frozen_columns() -> None:
    about = {"kind": "a.kind", "subject_type": "a.b", "subject_id": "1", "requested_by": "x"}
    Hold = apps.get_model("approvals", "Hold")
    closed = Hold.objects.create(**about, state="rejected")
    waiting = Hold.objects.create(**about, state="waiting")
    or_replace = OR_REPLACE[connection.vendor]
    with refused("approvals_hold keeps|hold_one_waiting"):
        run(f"UPDATE{or_replace} approvals_hold SET state = 'waiting' WHERE id = %s", closed.pk.hex)
    run("UPDATE approvals_hold SET state = 'withdrawn' WHERE id = %s", waiting.pk.hex)
    run("UPDATE approvals_hold SET state = 'waiting' WHERE id = %s", closed.pk.hex)
    assert Hold.objects.count() == 2


@pytest.mark.django_db
def test_every_registered_trigger_stands() -> None:
    assert selectors.missing_triggers() == []


@pytest.mark.django_db
def test_a_lifted_trigger_is_missed_and_put_back_by_the_next_migration() -> None:
    triggers.lift("guards")
    missing = selectors.missing_triggers()
    assert any("guards_decision_keeps" in name for name in missing)
    decision()
    run("UPDATE guards_decision SET rule = 'loop'")  # the negative control
    triggers.install_after_migration(apps.get_app_config("guards"), using="default")
    assert selectors.missing_triggers() == []
    with refused("append-only"):
        run("UPDATE guards_decision SET rule = 'no-text'")


@pytest.mark.django_db
def test_a_trigger_that_was_tampered_with_is_missed() -> None:
    name = "cs_guards_decision_keeps_on_update"
    if connection.vendor == "sqlite":
        run(f'DROP TRIGGER "{name}"')
        run(f'CREATE TRIGGER "{name}" BEFORE UPDATE ON guards_decision BEGIN SELECT 1; END')
    else:
        run(f'ALTER TABLE guards_decision DISABLE TRIGGER "{name}"')
    assert selectors.missing_triggers() == [name]
    triggers.install("guards")
    assert selectors.missing_triggers() == []


@pytest.mark.django_db
def test_a_trigger_of_an_earlier_version_goes_with_the_next_installation() -> None:
    if connection.vendor == "sqlite":
        run(
            'CREATE TRIGGER "cs_old_rule" BEFORE INSERT ON guards_heartbeat '
            "BEGIN SELECT RAISE(ABORT, 'old'); END"
        )
    else:
        run(
            'CREATE TRIGGER "cs_old_rule" BEFORE INSERT ON guards_heartbeat '
            "FOR EACH ROW EXECUTE FUNCTION countersign_refuse('old')"
        )
    triggers.install("guards")
    run(
        "INSERT INTO guards_heartbeat (holder, role, started_at, seen_at) "
        "VALUES ('h', 'web', '2026-11-30', '2026-11-30')"
    )


@pytest.fixture
def candidate(monkeypatch: pytest.MonkeyPatch) -> CandidateKey:
    """A row of a table whose fingerprint is frozen and whose source moves forward only."""
    monkeypatch.setattr(registry, "_protections", dict(registry._protections))
    monkeypatch.setattr(registry, "_row_rules", dict(registry._row_rules))
    registry.frozen_columns("guards.CandidateKey", ("fingerprint",))
    registry.refuse_update(
        "guards.CandidateKey",
        "source_moves_forward",
        "OLD.source = 'done' AND NEW.source <> 'done'",
        "what's done stays done: 100%",
    )
    row = CandidateKey.objects.create(fingerprint="A" * 40, public_key=b"key", source="new")
    triggers.install("guards")
    return row


@pytest.mark.django_db
def test_frozen_columns_stay_while_the_others_move(candidate: CandidateKey) -> None:
    run("UPDATE guards_candidatekey SET source = 'open', fingerprint = fingerprint")
    for sql in (
        "UPDATE guards_candidatekey SET fingerprint = 'B'",
        "UPDATE guards_candidatekey SET id = 99",
        "UPDATE guards_candidatekey SET fingerprint = NULL",
        "DELETE FROM guards_candidatekey",
    ):
        with refused("keeps its fingerprint, id, and its rows"):
            run(sql)
    candidate.refresh_from_db()
    assert (candidate.fingerprint, candidate.source) == ("A" * 40, "open")


@pytest.mark.django_db
def test_a_rule_on_updates_refuses_the_move_it_names(candidate: CandidateKey) -> None:
    run("UPDATE guards_candidatekey SET source = 'done'")
    with refused("what's done stays done: 100%"):
        run("UPDATE guards_candidatekey SET source = 'open'")
    CandidateKey.objects.create(fingerprint="B" * 40, public_key=b"key", source="open")


def test_a_field_that_does_not_exist_cannot_be_frozen() -> None:
    protection = registry.Protection("guards.Contact", ("adress",))
    with pytest.raises(LookupError, match="adress"):
        triggers._columns(Contact, protection)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("turn", [1, 2])
def test_the_flush_of_a_transactional_test_empties_protected_tables_and_keeps_their_triggers(
    turn: int,
) -> None:
    assert Decision.objects.count() == 0
    assert selectors.missing_triggers() == []
    IdentityFactory()
    decision()
    with refused("append-only"):
        run("DELETE FROM guards_decision")


@pytest.mark.django_db(transaction=True)
def test_a_migration_that_alters_a_protected_table_leaves_the_triggers_standing() -> None:
    decision()
    now = Decision._meta.get_field("sender")
    wider = models.CharField(max_length=300, blank=True)
    wider.set_attributes_from_name("sender")
    wider.model = Decision
    config = apps.get_app_config("guards")
    for before, after in ((now, wider), (wider, now)):
        triggers.lift_before_migration(config, "default", plan=[object()])
        with connection.schema_editor() as editor:
            editor.alter_field(Decision, before, after)
        triggers.install_after_migration(config, "default")
        assert selectors.missing_triggers() == []
        with refused("append-only"):
            run("DELETE FROM guards_decision")
