"""Invariant 10: trust and permission are two gates, and both must pass. All 96 cells."""

from __future__ import annotations

import pytest

from guards import selectors
from guards.services import decisions, permissions
from guards.types import (
    Action,
    Rwx,
    TrustEvidence,
    TrustLevel,
    TrustReason,
    TrustVerdict,
    Verdict,
)
from tests.guards.factories import OPERATOR, ContactFactory, IdentityFactory

# What the sender may, how sure we are of them, and the rule that answers each question.
TABLE = """
rwx  trust       read             reply            execute
---  trusted     no-permission    no-write         no-permission
---  verified    no-permission    no-write         no-permission
---  unverified  no-permission    no-write         no-permission
---  untrusted   no-permission    no-write         no-permission
r--  trusted     read-permitted   no-write         read-permitted
r--  verified    read-permitted   no-write         read-permitted
r--  unverified  read-permitted   no-write         read-permitted
r--  untrusted   read-permitted   no-write         read-permitted
-w-  trusted     no-permission    write-permitted  no-permission
-w-  verified    no-permission    write-permitted  no-permission
-w-  unverified  no-permission    write-permitted  no-permission
-w-  untrusted   no-permission    write-permitted  no-permission
--x  trusted     no-permission    no-write         execute-permitted
--x  verified    no-permission    no-write         execute-permitted
--x  unverified  no-permission    no-write         trust-too-low
--x  untrusted   no-permission    no-write         trust-too-low
rw-  trusted     read-permitted   write-permitted  read-permitted
rw-  verified    read-permitted   write-permitted  read-permitted
rw-  unverified  read-permitted   write-permitted  read-permitted
rw-  untrusted   read-permitted   write-permitted  read-permitted
r-x  trusted     read-permitted   no-write         execute-permitted
r-x  verified    read-permitted   no-write         execute-permitted
r-x  unverified  read-permitted   no-write         trust-too-low
r-x  untrusted   read-permitted   no-write         trust-too-low
-wx  trusted     no-permission    write-permitted  execute-permitted
-wx  verified    no-permission    write-permitted  execute-permitted
-wx  unverified  no-permission    write-permitted  trust-too-low
-wx  untrusted   no-permission    write-permitted  trust-too-low
rwx  trusted     read-permitted   write-permitted  execute-permitted
rwx  verified    read-permitted   write-permitted  execute-permitted
rwx  unverified  read-permitted   write-permitted  trust-too-low
rwx  untrusted   read-permitted   write-permitted  trust-too-low
"""
CELLS = [tuple(line.split()) for line in TABLE.strip().splitlines()[1:]]
ALLOWING = {"read-permitted", "write-permitted", "execute-permitted"}


def verdict_of(level: str) -> TrustVerdict:
    return TrustVerdict(TrustLevel(level), TrustReason.UNSIGNED, TrustEvidence())


@pytest.mark.invariant(10)
def test_the_table_has_every_cell_once() -> None:
    assert len({(rwx, trust) for rwx, trust, *_ in CELLS}) == 4 * 8


@pytest.mark.invariant(10)
@pytest.mark.fault("transport-auth-07")
@pytest.mark.parametrize(("rwx", "trust", "read", "reply", "execute"), CELLS)
def test_each_cell_is_decided_by_the_rule_in_the_table(
    rwx: str, trust: str, read: str, reply: str, execute: str
) -> None:
    permission = Rwx.parse(rwx)
    reading = decisions.decide_read(
        action=Action.READ, sender="a@example.org", permission=permission
    )
    replying = decisions.decide_send(permissions={"a@example.org": permission})
    executing = decisions.decide_message(
        sender="a@example.org",
        permission=permission,
        trust=verdict_of(trust),
        loop=None,
        has_text=True,
        bound=True,
        too_old=False,
    )
    assert (reading.rule, replying.rule, executing.rule) == (read, reply, execute)
    for judgement in (reading, replying):
        assert (judgement.verdict is Verdict.ALLOW) == (judgement.rule in ALLOWING)
    starts = executing.action is Action.EXECUTE and executing.verdict is Verdict.ALLOW
    assert starts == (execute == "execute-permitted")
    assert starts == (permission.execute and trust in {"trusted", "verified"})


@pytest.mark.invariant(10)
@pytest.mark.django_db
def test_rights_for_one_identity_say_nothing_about_another() -> None:
    mine, other, contact = IdentityFactory(), IdentityFactory(), ContactFactory()
    permissions.grant(identity=mine, contact=contact, rwx=Rwx(True, True, True), by=OPERATOR)
    book = selectors.contact_book()
    assert str(book.rwx(mine.pk, contact.address)) == "rwx"
    assert str(book.rwx(other.pk, contact.address)) == "---"
    assert str(book.rwx(None, contact.address)) == "---"


@pytest.mark.invariant(10)
@pytest.mark.django_db
def test_a_stranger_and_a_contact_without_a_row_have_nothing() -> None:
    identity, contact = IdentityFactory(), ContactFactory()
    book = selectors.contact_book()
    assert str(book.rwx(identity.pk, "stranger@example.net")) == "---"
    assert str(book.rwx(identity.pk, contact.address)) == "---"
    assert str(book.rwx(identity.pk, None)) == "---"
