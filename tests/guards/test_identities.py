"""Identities: one schema for people and agents, one default, references instead of secrets."""

from __future__ import annotations

import pytest

from guards.exceptions import Conflict, CountersignError, InvalidInput, Refused
from guards.models import Identity
from guards.selectors import default_identity
from guards.services import identities
from guards.types import Asker, Refusal
from tests.guards.factories import OPERATOR, IdentityFactory

pytestmark = pytest.mark.django_db


def test_it_creates_an_identity_with_safe_defaults() -> None:
    identity = identities.create_identity(
        handle="claude",
        email="Claude@House.example",
        openpgp_fingerprint="aaaa bbbb cccc dddd eeee  ffff 0000 1111 2222 3333",
        passphrase_ref="env:CLAUDE_PASSPHRASE",
        is_default=True,
        by=OPERATOR,
    )
    identity.refresh_from_db()
    assert (identity.name, identity.email) == ("claude", "claude@house.example")
    assert identity.openpgp_fingerprint == "AAAABBBBCCCCDDDDEEEEFFFF0000111122223333"
    assert identity.reply_policy == Identity.ReplyPolicy.APPROVE
    assert identity.recipient_binding == Identity.Binding.REQUIRED
    assert default_identity() == identity


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("email", "not an address"),
        ("email", "*@house.example"),
        ("handle", "two words"),
        ("openpgp_fingerprint", "DEADBEEF"),
        ("reply_policy", "sometimes"),
        ("recipient_binding", "maybe"),
        ("kind", "robot"),
    ],
)
@pytest.mark.fault("W8")
def test_it_names_the_field_that_is_wrong(field: str, value: str) -> None:
    fields = {"handle": "claude", "email": "claude@house.example", field: value}
    with pytest.raises(InvalidInput) as refused:
        identities.create_identity(by=OPERATOR, **fields)
    assert refused.value.field == field
    assert not Identity.objects.exists()


def test_it_refuses_text_that_looks_like_a_raw_secret_as_a_reference() -> None:
    with pytest.raises(CountersignError):
        identities.create_identity(
            handle="claude",
            email="claude@house.example",
            passphrase_ref="correct horse battery staple!",
            by=OPERATOR,
        )


def test_handle_and_address_are_taken_once_whatever_their_case() -> None:
    IdentityFactory(handle="claude", email="claude@house.example")
    for handle, email in (("Claude", "x@house.example"), ("x", "CLAUDE@house.example")):
        with pytest.raises(Conflict) as refused:
            identities.create_identity(handle=handle, email=email, by=OPERATOR)
        assert refused.value.rule == Refusal.ADDRESS_TAKEN


def test_there_is_one_default_and_it_cannot_be_switched_off() -> None:
    first = identities.create_identity(
        handle="a", email="a@house.example", is_default=True, by=OPERATOR
    )
    second = identities.create_identity(handle="b", email="b@house.example", by=OPERATOR)
    identities.set_default(identity=second, by=OPERATOR)
    assert list(Identity.objects.filter(is_default=True)) == [second]
    with pytest.raises(InvalidInput, match="default"):
        identities.update_identity(identity=second, is_active=False, by=OPERATOR)
    asleep = identities.update_identity(identity=first, is_active=False, by=OPERATOR)
    with pytest.raises(InvalidInput, match="switched off"):
        identities.set_default(identity=asleep, by=OPERATOR)


def test_an_agent_changes_no_identity_its_own_included() -> None:
    identity = IdentityFactory()
    agent = Asker("identity", identity.handle)
    with pytest.raises(Refused) as refused:
        identities.update_identity(identity=identity, reply_policy="auto", by=agent)
    assert refused.value.rule == Refusal.OPERATOR_ONLY
    identity.refresh_from_db()
    assert identity.reply_policy == Identity.ReplyPolicy.APPROVE
