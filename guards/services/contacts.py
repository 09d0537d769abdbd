"""The address book: who writes to us, under which addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from guards import patterns, storable
from guards.addresses import normalise, normalise_exact
from guards.exceptions import Conflict, InvalidInput, Refused
from guards.models import Contact, ContactAlias, Identity
from guards.services import permissions
from guards.services.authority import own_identity, require_operator
from guards.services.races import lost_to
from guards.services.units import unit_of_work
from guards.types import NOTHING, READ_ONLY, Asker, Refusal, Rwx


def add_contact(
    *,
    address: str,
    name: str = "",
    notes: str = "",
    aliases: Iterable[str] = (),
    grants: Mapping[Identity, Rwx] | None = None,
    by: Asker,
) -> Contact:
    """Add an exact address or a pattern, with its first rights.

    An agent may add a contact without aliases, with at most `r--` for its own identity; everything
    else needs the operator (W11). InvalidInput for an address or pattern that cannot be read,
    Conflict (`address-taken`) for one that is in the book already.
    """
    wanted, called = _read_entry(address), _read_name(name)
    other_names = [normalise_exact(alias, field="aliases") for alias in aliases]
    rights = dict(grants or {})
    if not by.may_change_rights:
        _refuse_more_than_an_agent_may(wanted, other_names, rights, by)
    is_pattern = patterns.is_pattern(wanted)
    for rwx in rights.values():
        permissions.refuse_beyond_pattern(is_pattern=is_pattern, rwx=rwx)
    with unit_of_work():
        _refuse_taken(wanted)
        with lost_to(_taken(wanted, "address")):
            contact = Contact.objects.create(
                name=called,
                address=wanted,
                is_pattern=is_pattern,
                notes=storable.text(notes),
            )
        for alias in other_names:
            _create_alias(contact, alias)
        for identity, rwx in rights.items():
            permissions.write(identity=identity, contact=contact, rwx=rwx, by=by)
    return contact


def update_contact(
    *,
    contact: Contact,
    name: str | None = None,
    address: str | None = None,
    notes: str | None = None,
    by: Asker,
) -> Contact:
    """Change name, notes or address; what is None stays. Operator only: an address carries rights.

    An exact address may become a pattern only while it holds no alias, no pin and at most `r--`.
    """
    require_operator(by=by, act="change a contact")
    with unit_of_work():
        row = Contact.objects.select_for_update().get(pk=contact.pk)
        if address is not None:
            wanted = _read_entry(address)
            _refuse_taken(wanted, apart_from=row)
            row.address, row.is_pattern = wanted, patterns.is_pattern(wanted)
            if row.is_pattern:
                _refuse_what_a_pattern_may_not_hold(row)
        row.name = row.name if name is None else _read_name(name)
        row.notes = row.notes if notes is None else storable.text(notes)
        with lost_to(_taken(row.address, "address")):
            row.save()
    return row


def add_alias(*, contact: Contact, address: str, by: Asker) -> ContactAlias:
    """Give a contact one more exact address, which then carries all its rights. Operator only."""
    require_operator(by=by, act="add an alias")
    wanted = normalise_exact(address)
    with unit_of_work():
        return _create_alias(contact, wanted)


def remove_alias(*, alias: ContactAlias, by: Asker) -> None:
    """Take an address away from its contact. Operator only."""
    require_operator(by=by, act="remove an alias")
    with unit_of_work():
        alias.delete()


def remove_contact(*, contact: Contact, by: Asker) -> None:
    """Remove a contact with its rights and aliases. Operator only.

    Conflict while a key is or was pinned to it: verdicts refer to that key. Grant `---` instead.
    """
    require_operator(by=by, act="remove a contact")
    with unit_of_work():
        if contact.pins.exists():
            raise Conflict(
                f"{contact} has a pinned key that verdicts refer to: grant --- instead",
                rule=Refusal.KEY_TAKEN,
            )
        for permission in contact.permissions.select_related("identity"):
            permissions.write(identity=permission.identity, contact=contact, rwx=NOTHING, by=by)
        contact.delete()


def _read_name(text: str) -> str:
    return storable.line(text, field="name", most=200)


def _read_entry(text: str) -> str:
    entry = normalise(text)
    if not patterns.is_pattern(entry):
        return normalise_exact(entry)
    patterns.validate(entry)
    return entry


def _create_alias(contact: Contact, address: str) -> ContactAlias:
    if contact.is_pattern:
        raise InvalidInput(
            f"{contact.address} is a pattern, which has no aliases",
            field="aliases",
            rule=Refusal.PATTERN_HOLDS_NO_ALIAS,
        )
    if patterns.is_pattern(address):
        raise InvalidInput(
            f"{address} is a pattern, and an alias is one exact address",
            field="aliases",
            rule=Refusal.PATTERN_HOLDS_NO_ALIAS,
        )
    _refuse_taken(address, field="aliases")
    with lost_to(_taken(address, "aliases")):
        return ContactAlias.objects.create(contact=contact, address=address)


def _refuse_taken(
    address: str, *, apart_from: Contact | None = None, field: str = "address"
) -> None:
    contacts = Contact.objects.filter(address=address)
    if apart_from is not None:
        contacts = contacts.exclude(pk=apart_from.pk)
    if contacts.exists() or ContactAlias.objects.filter(address=address).exists():
        raise _taken(address, field)


def _taken(address: str, field: str) -> Conflict:
    return Conflict(
        f"{address} is in the address book already", field=field, rule=Refusal.ADDRESS_TAKEN
    )


def _refuse_what_a_pattern_may_not_hold(contact: Contact) -> None:
    if contact.aliases.exists():
        raise InvalidInput(
            "a pattern has no aliases: remove them first",
            field="address",
            rule=Refusal.PATTERN_HOLDS_NO_ALIAS,
        )
    if contact.pins.filter(removed_at=None).exists():
        raise InvalidInput(
            "a pattern has no pinned key: remove it first",
            field="address",
            rule=Refusal.PATTERN_HOLDS_NO_KEY,
        )
    for permission in contact.permissions.all():
        permissions.refuse_beyond_pattern(is_pattern=True, rwx=permission.rwx)


def _refuse_more_than_an_agent_may(
    address: str, aliases: list[str], grants: Mapping[Identity, Rwx], by: Asker
) -> None:
    if aliases:
        require_operator(by=by, act="add an alias")
    if any(rwx not in (NOTHING, READ_ONLY) for rwx in grants.values()):
        require_operator(by=by, act="grant more than r--")
    own = own_identity(by=by)
    if any(identity != own for identity in grants):
        raise Refused(
            "an agent adds contacts for its own identity only", rule=Refusal.OTHER_IDENTITY
        )
    domain = address.rpartition("@")[2]
    if patterns.is_pattern(address) and (patterns.is_pattern(domain) or "." not in domain):
        raise Refused(
            "an agent's pattern names one domain in full, such as *@mail.example.org",
            field="address",
            rule=Refusal.PATTERN_TOO_WIDE,
        )
