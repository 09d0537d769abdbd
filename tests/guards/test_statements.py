"""Statements that go in one message do what they do one by one, on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from guards.models import Identity
from guards.services import statements
from guards.services.statements import Result, Statement
from guards.services.units import unit_of_work
from guards.signals import unit_closing
from tests.guards.factories import AliasFactory, IdentityFactory

AWKWARD = [
    "a; b",
    "100% of %s and %(x)s",
    "it's \"quoted\" \\ 'twice''",
    "é 😀 \u2028",
    "--",
    "$1 ?",
]

RENAME = "UPDATE guards_identity SET name = %s WHERE id = %s"
READ = "SELECT name FROM guards_identity WHERE id = %s"


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """What is sent through Django's cursor, one text for each message."""
    sent: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        sent.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        yield sent


def renamed(identity: Identity, name: str) -> Statement:
    return Statement(RENAME, [name, identity.pk])


def read(identity: Identity) -> Statement:
    return Statement(READ, [identity.pk])


def takes_the_handle_of(first: Identity, second: Identity) -> Statement:
    """What the database refuses: a handle is there once."""
    text = "UPDATE guards_identity SET handle = %s WHERE id = %s"
    return Statement(text, [first.handle, second.pk])


@pytest.mark.django_db
def test_each_statement_has_its_own_result_in_its_order(messages) -> None:
    identity, other = IdentityFactory(name="old"), IdentityFactory(name="other")
    gone = Statement(RENAME, ["x", 0])
    messages.clear()

    results = statements.execute([read(identity), renamed(identity, "new"), gone, read(identity)])

    assert [one.rows for one in results] == [[("old",)], [], [], [("new",)]]
    assert [one.met for one in results[1:3]] == [1, 0]
    other.refresh_from_db()
    assert other.name == "other"
    assert statements.execute([]) == []


@pytest.mark.django_db
def test_they_are_one_message_where_the_database_is_a_way_off(messages) -> None:
    identity = IdentityFactory()
    messages.clear()
    statements.execute([read(identity), renamed(identity, "new"), read(identity)])
    assert len(messages) == (1 if connection.vendor == "postgresql" else 3)


@pytest.mark.django_db
@pytest.mark.parametrize("value", AWKWARD)
def test_a_value_is_a_value_whatever_it_holds(value: str) -> None:
    identity, other = IdentityFactory(name="old"), IdentityFactory(name="other")
    asked = [renamed(identity, value), read(identity), read(other), Statement("SELECT 1")]

    _, first, second, third = statements.execute(asked)

    assert (first.rows, second.rows, third) == ([(value,)], [("other",)], Result(third.met, [(1,)]))


@pytest.mark.django_db
def test_a_value_that_no_text_can_be_is_refused_as_by_the_database() -> None:
    """SQLite takes it. What was not sent breaks no transaction."""
    identity = IdentityFactory(name="old")
    if connection.vendor != "postgresql":
        statements.execute([renamed(identity, "a\0b")])
        return
    with pytest.raises(DatabaseError):
        statements.execute([renamed(identity, "new"), renamed(identity, "a\0b")])
    (result,) = statements.execute([read(identity)])
    assert result.rows == [("old",)]


@pytest.mark.django_db(transaction=True)
def test_what_fails_in_the_middle_takes_back_all_of_its_unit() -> None:
    first, second = IdentityFactory(name="a"), IdentityFactory(name="b")
    taken = takes_the_handle_of(first, second)

    with pytest.raises(IntegrityError), unit_of_work():
        statements.execute([renamed(first, "new"), taken, renamed(second, "new")])

    assert set(Identity.objects.values_list("name", flat=True)) == {"a", "b"}
    assert statements.execute([read(first)])[0].rows == [("a",)], "the connection goes on"


@pytest.mark.django_db(transaction=True)
def test_the_last_statement_of_a_unit_is_there_with_its_commit(messages) -> None:
    identity = IdentityFactory(name="old")
    told: list[str] = []
    messages.clear()

    with unit_of_work() as unit:
        unit.last.append(renamed(identity, "new"))
        transaction.on_commit(lambda: told.append(Identity.objects.get().name))

    assert told == ["new"]
    if connection.vendor == "postgresql":
        bound = RENAME % ("'new'", identity.pk)
        assert messages[0] == f"{bound}; COMMIT"
        assert not connection.in_atomic_block and connection.get_autocommit()


@pytest.mark.django_db(transaction=True)
def test_a_transaction_around_the_unit_is_not_committed_by_it() -> None:
    identity = IdentityFactory(name="old")

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        with unit_of_work() as unit:
            unit.last.append(renamed(identity, "new"))
        raise ZeroDivisionError

    identity.refresh_from_db()
    assert identity.name == "old"


@pytest.mark.django_db(transaction=True)
def test_a_last_statement_that_fails_leaves_nothing_of_the_unit() -> None:
    first, second = IdentityFactory(name="a"), IdentityFactory(name="b")
    taken = takes_the_handle_of(first, second)
    told: list[str] = []

    with pytest.raises(IntegrityError), unit_of_work() as unit:
        Identity.objects.filter(pk=first.pk).update(name="new")
        transaction.on_commit(lambda: told.append("committed"))
        unit.last.append(taken)

    first.refresh_from_db()
    assert (first.name, told) == ("a", [])


@pytest.mark.django_db(transaction=True)
def test_what_the_commit_itself_refuses_leaves_nothing_of_the_unit() -> None:
    """A foreign key is looked at when the transaction ends, whoever sends its COMMIT."""
    identity, alias = IdentityFactory(name="old"), AliasFactory()
    told: list[str] = []
    astray = Statement("UPDATE guards_contactalias SET contact_id = 0 WHERE id = %s", [alias.pk])

    with pytest.raises(IntegrityError), unit_of_work() as unit:
        transaction.on_commit(lambda: told.append("committed"))
        unit.last += [renamed(identity, "new"), astray]

    identity.refresh_from_db()
    assert (identity.name, told) == ("old", [])
    with unit_of_work() as unit:
        unit.last.append(renamed(identity, "new"))
    identity.refresh_from_db()
    assert identity.name == "new", "the connection goes on"


@pytest.mark.django_db(transaction=True)
def test_a_unit_that_must_roll_back_commits_nothing() -> None:
    identity = IdentityFactory(name="old")

    with pytest.raises(DatabaseError), unit_of_work() as unit:
        transaction.set_rollback(True)
        unit.last.append(renamed(identity, "new"))

    identity.refresh_from_db()
    assert identity.name == "old"


@pytest.mark.django_db(transaction=True)
def test_who_refuses_as_the_unit_closes_comes_before_its_commit() -> None:
    identity = IdentityFactory(name="old")

    def refuse(**_: Any) -> None:
        raise ZeroDivisionError

    unit_closing.connect(refuse)
    try:
        with pytest.raises(ZeroDivisionError), unit_of_work() as unit:
            unit.last.append(renamed(identity, "new"))
    finally:
        unit_closing.disconnect(refuse)

    identity.refresh_from_db()
    assert identity.name == "old"
