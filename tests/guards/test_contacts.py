"""The address book is changed by services, and only the operator gives anything away."""

from __future__ import annotations

import pytest

from guards.exceptions import Conflict, InvalidInput, Refused
from guards.models import Contact, ContactAlias, Permission, PinnedKey
from guards.services import contacts, permissions, tokens
from guards.signals import permission_changed
from guards.types import SYSTEM, Asker, Refusal, Rwx
from tests.guards.factories import (
    OPERATOR,
    AliasFactory,
    ContactFactory,
    IdentityFactory,
    PermissionFactory,
)

pytestmark = pytest.mark.django_db


def agent_of(identity: object) -> Asker:
    token, _ = tokens.mint(label="agent", scopes=["contacts:read"], identity=identity, by=OPERATOR)
    return Asker("token", token.prefix)


def test_it_adds_an_exact_contact_with_aliases_and_rights() -> None:
    identity = IdentityFactory()
    contact = contacts.add_contact(
        address=" Ada@Example.ORG ",
        name="Ada",
        aliases=["ADA@work.example"],
        grants={identity: Rwx(True, True, True)},
        by=OPERATOR,
    )
    assert contact.address == "ada@example.org"
    assert not contact.is_pattern
    assert contact.aliases.get().address == "ada@work.example"
    assert str(contact.permissions.get().rwx) == "rwx"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "nobody",
        "@example.org",
        "ada@",
        "ada@example.org, bob@example.org",
        "github-actions[bot] <n@example.com>",
        '"Ada" <ada@example.org>',
        "ada@example.org\nbcc: x@y.z",
        "ada\u202e@example.org",
        "a" * 250 + "@example.org",
    ],
)
def test_it_refuses_what_is_not_one_plain_address(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        contacts.add_contact(address=text, by=OPERATOR)
    assert refused.value.field == "address"


@pytest.mark.one_database
@pytest.mark.parametrize("name", ["x" * 201, "Ada\nBcc: x@y.z", "Ada\x00"])
def test_a_name_is_one_line_that_fits(name: str) -> None:
    contact = ContactFactory()
    for attempt in (
        lambda: contacts.add_contact(address="ada@example.org", name=name, by=OPERATOR),
        lambda: contacts.update_contact(contact=contact, name=name, by=OPERATOR),
    ):
        with pytest.raises(InvalidInput) as refused:
            attempt()
        assert refused.value.field == "name"


def test_it_refuses_a_malformed_pattern_when_it_is_entered() -> None:
    with pytest.raises(InvalidInput, match="invalid pattern syntax"):
        contacts.add_contact(address="[abc*@example.com", by=OPERATOR)


@pytest.mark.parametrize("rwx", ["rw-", "r-x", "-w-", "--x", "rwx"])
def test_it_refuses_a_pattern_contact_with_write_or_execute(rwx: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        contacts.add_contact(
            address="*@example.org", grants={IdentityFactory(): Rwx.parse(rwx)}, by=OPERATOR
        )
    assert refused.value.rule == Refusal.PATTERN_READ_ONLY
    assert rwx in refused.value.detail
    assert not Contact.objects.exists()


def test_an_address_stands_once_in_the_book_as_contact_or_as_alias() -> None:
    contacts.add_contact(address="ada@example.org", aliases=["ada@work.example"], by=OPERATOR)
    other = contacts.add_contact(address="bob@example.org", by=OPERATOR)
    for taken in ("ADA@example.org", "ada@WORK.example"):
        with pytest.raises(Conflict) as refused:
            contacts.add_contact(address=taken, by=OPERATOR)
        assert refused.value.rule == Refusal.ADDRESS_TAKEN
        with pytest.raises(Conflict):
            contacts.add_alias(contact=other, address=taken, by=OPERATOR)
        with pytest.raises(Conflict):
            contacts.update_contact(contact=other, address=taken, by=OPERATOR)


def test_a_pattern_holds_no_alias_and_an_alias_is_no_pattern() -> None:
    pattern = ContactFactory(address="*@example.org")
    for contact, address in ((pattern, "a@x.example"), (ContactFactory(), "*@x.example")):
        with pytest.raises(InvalidInput) as refused:
            contacts.add_alias(contact=contact, address=address, by=OPERATOR)
        assert refused.value.rule == Refusal.PATTERN_HOLDS_NO_ALIAS


def test_a_contact_becomes_a_pattern_only_without_alias_pin_and_rights() -> None:
    aliased = AliasFactory().contact
    entitled = PermissionFactory(write=True).contact
    pinned = ContactFactory()
    PinnedKey.objects.create(
        contact=pinned, fingerprint="B" * 40, public_key=b"key", pinned_by="operator:ada"
    )
    for contact in (aliased, entitled, pinned):
        with pytest.raises(InvalidInput, match="pattern"):
            contacts.update_contact(contact=contact, address="*@x.example", by=OPERATOR)
    plain = PermissionFactory().contact
    changed = contacts.update_contact(contact=plain, address="*@X.example", by=OPERATOR)
    assert (changed.address, changed.is_pattern) == ("*@x.example", True)


def test_an_update_keeps_what_is_not_given() -> None:
    contact = ContactFactory(name="Ada", notes="met in London")
    changed = contacts.update_contact(contact=contact, name="Ada L.", by=OPERATOR)
    assert (changed.name, changed.notes, changed.address) == (
        "Ada L.",
        "met in London",
        contact.address,
    )


def test_removing_a_contact_announces_that_its_rights_are_gone() -> None:
    permission = PermissionFactory(execute=True)
    heard: list[str] = []

    def listen(permission: Permission, by: str, **_: object) -> None:
        heard.append(f"{permission.rwx} {by}")

    permission_changed.connect(listen)
    try:
        contacts.remove_contact(contact=permission.contact, by=OPERATOR)
    finally:
        permission_changed.disconnect(listen)
    assert heard == ["--- operator:ada"]
    assert not Contact.objects.exists()
    assert not Permission.objects.exists()


def test_a_contact_with_a_key_that_verdicts_refer_to_stays() -> None:
    contact = ContactFactory()
    PinnedKey.objects.create(
        contact=contact, fingerprint="C" * 40, public_key=b"key", pinned_by="operator:ada"
    )
    with pytest.raises(Conflict, match="grant ---"):
        contacts.remove_contact(contact=contact, by=OPERATOR)


@pytest.mark.fault("W11")
def test_an_agent_adds_a_contact_with_read_for_its_own_identity() -> None:
    identity = IdentityFactory()
    contact = contacts.add_contact(
        address="vendor@example.org", grants={identity: Rwx(read=True)}, by=agent_of(identity)
    )
    assert str(contact.permissions.get().rwx) == "r--"
    assert contact.permissions.get().granted_by.startswith("token:cs_")


@pytest.mark.one_database
@pytest.mark.fault("W11")
@pytest.mark.parametrize("rwx", ["-w-", "--x", "rw-", "r-x", "rwx"])
def test_an_agent_grants_no_more_than_read(rwx: str) -> None:
    identity = IdentityFactory()
    with pytest.raises(Refused) as refused:
        contacts.add_contact(
            address="self@example.org",
            grants={identity: Rwx.parse(rwx)},
            by=agent_of(identity),
        )
    assert refused.value.rule == Refusal.OPERATOR_ONLY
    assert not Contact.objects.exists()


@pytest.mark.one_database
@pytest.mark.fault("W11")
def test_an_agent_grants_nothing_on_another_identity() -> None:
    identity, other = IdentityFactory(), IdentityFactory()
    for by in (agent_of(identity), Asker("identity", identity.handle), Asker("token", "cs_none")):
        with pytest.raises(Refused) as refused:
            contacts.add_contact(
                address="vendor@example.org", grants={other: Rwx(read=True)}, by=by
            )
        assert refused.value.rule == Refusal.OTHER_IDENTITY


@pytest.mark.one_database
@pytest.mark.fault("W11")
def test_an_agent_neither_aliases_nor_changes_nor_removes_nor_grants() -> None:
    identity = IdentityFactory()
    agent = agent_of(identity)
    contact = ContactFactory()
    alias = AliasFactory()
    attempts = [
        lambda: contacts.add_contact(address="x@y.example", aliases=["z@y.example"], by=agent),
        lambda: contacts.add_alias(contact=contact, address="me@evil.example", by=agent),
        lambda: contacts.update_contact(contact=contact, address="me@evil.example", by=agent),
        lambda: contacts.update_contact(contact=contact, name="x", by=agent),
        lambda: contacts.remove_alias(alias=alias, by=agent),
        lambda: contacts.remove_contact(contact=contact, by=agent),
        lambda: permissions.grant(identity=identity, contact=contact, rwx=Rwx(read=True), by=agent),
    ]
    for attempt in attempts:
        with pytest.raises(Refused) as refused:
            attempt()
        assert refused.value.rule == Refusal.OPERATOR_ONLY
    assert ContactAlias.objects.get() == alias
    contact.refresh_from_db()
    assert contact.address.endswith("@example.org")


@pytest.mark.one_database
@pytest.mark.parametrize("address", ["*", "*@*", "*@*.example.org", "a@[a-z]*.org", "*@local"])
def test_a_pattern_that_an_agent_adds_names_one_domain_in_full(address: str) -> None:
    identity = IdentityFactory()
    agent = agent_of(identity)
    with pytest.raises(Refused) as refused:
        contacts.add_contact(address=address, grants={identity: Rwx(read=True)}, by=agent)
    assert refused.value.rule == Refusal.PATTERN_TOO_WIDE
    narrow = contacts.add_contact(
        address="*@mail.example.org", grants={identity: Rwx(read=True)}, by=agent
    )
    assert narrow.is_pattern
    assert contacts.add_contact(address=address, by=SYSTEM).is_pattern
