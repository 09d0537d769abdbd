"""Several processes at once: one address, one replay key, one default, whoever comes first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from guards import selectors
from guards.exceptions import Conflict
from guards.models import Contact, ContactAlias, Identity, ReplayEntry
from guards.services import contacts, identities, replay
from guards.types import Subject
from tests.databases import exit_of, forked, shared
from tests.guards.factories import OPERATOR, ContactFactory, IdentityFactory

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = range(8)


def at_once(*works: Callable[[], None]) -> None:
    children = [forked(work) for work in works]
    assert [exit_of(child) for child in children] == [0] * len(children)


@pytest.mark.invariant(2, 12)
@pytest.mark.fault("W6")
def test_one_replay_key_starts_one_pipeline_whoever_claims_it(tmp_path: Path) -> None:
    def claim_all(name: str) -> Callable[[], None]:
        def work() -> None:
            for number in ROUNDS:
                taken = replay.claim(key=f"{number:064}", subject=Subject("pipeline", name))
                (tmp_path / f"{name}-{number}").write_text(str(taken))

        return work

    with shared(tmp_path):
        at_once(claim_all("a"), claim_all("b"), claim_all("c"))
        assert ReplayEntry.objects.count() == len(ROUNDS)
        for number in ROUNDS:
            holder = ReplayEntry.objects.get(key=f"{number:064}").subject_id
            winners = [n for n in "abc" if (tmp_path / f"{n}-{number}").read_text() == "True"]
            assert winners == [holder]


def test_one_address_ends_up_as_one_contact_or_one_alias(tmp_path: Path) -> None:
    friend = ContactFactory()

    def add() -> None:
        for number in ROUNDS:
            try:
                contacts.add_contact(address=f"x{number}@example.org", by=OPERATOR)
            except Conflict:
                continue

    def alias() -> None:
        for number in ROUNDS:
            try:
                contacts.add_alias(contact=friend, address=f"x{number}@example.org", by=OPERATOR)
            except Conflict:
                continue

    with shared(tmp_path):
        at_once(add, alias, add)
        both = [
            *Contact.objects.exclude(pk=friend.pk).values_list("address", flat=True),
            *ContactAlias.objects.values_list("address", flat=True),
        ]
        assert sorted(both) == sorted(f"x{number}@example.org" for number in ROUNDS)


def test_there_is_one_default_identity_whoever_chose_last(tmp_path: Path) -> None:
    first, second = IdentityFactory(), IdentityFactory()

    def choose(identity: Identity) -> Callable[[], None]:
        def work() -> None:
            for _ in ROUNDS:
                identities.set_default(identity=identity, by=OPERATOR)

        return work

    with shared(tmp_path):
        at_once(choose(first), choose(second))
        assert selectors.default_identity() in (first, second)
