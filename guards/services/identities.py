"""Identities: whom this installation acts as, and whom it knows as people (DES-013)."""

from __future__ import annotations

from typing import TypedDict, Unpack

from django.core.exceptions import ValidationError

from guards import secrets
from guards.addresses import normalise_exact
from guards.exceptions import Conflict, InvalidInput
from guards.models import Identity
from guards.patterns import is_pattern
from guards.services.authority import require_operator
from guards.services.races import lost_to
from guards.services.units import unit_of_work
from guards.types import Asker, Refusal


class IdentityFields(TypedDict, total=False):
    """What may be said about an identity; each is described at `Identity`."""

    name: str
    kind: str
    email: str
    openpgp_fingerprint: str
    gpg_home: str
    passphrase_ref: str
    reply_policy: str
    recipient_binding: str
    is_active: bool


class _MoreFields(TypedDict, total=False):
    kind: str
    openpgp_fingerprint: str
    gpg_home: str
    passphrase_ref: str
    reply_policy: str
    recipient_binding: str
    is_active: bool


def create_identity(
    *,
    handle: str,
    email: str,
    name: str = "",
    is_default: bool = False,
    by: Asker,
    **more: Unpack[_MoreFields],
) -> Identity:
    """Create an identity; without a name it is called by its handle. Operator only.

    `passphrase_ref` is a secret reference, never a secret. InvalidInput names the field that is
    wrong; Conflict says that the handle or the address is taken.
    """
    require_operator(by=by, act="create an identity")
    identity = Identity(
        handle=handle, **_readable({"email": email, "name": name or handle, **more})
    )
    with unit_of_work():
        _check(identity)
        with lost_to(_taken("email", identity.email)):
            identity.save()
        if is_default:
            set_default(identity=identity, by=by)
            identity.is_default = True
    return identity


def update_identity(*, identity: Identity, by: Asker, **fields: Unpack[IdentityFields]) -> Identity:
    """Change what is given; the rest stays. The handle never changes. Operator only.

    The default identity cannot be switched off: choose another default first.
    """
    require_operator(by=by, act="change an identity")
    with unit_of_work():
        row = Identity.objects.select_for_update().get(pk=identity.pk)
        for field, value in _readable(fields).items():
            setattr(row, field, value)
        if row.is_default and not row.is_active:
            raise InvalidInput(
                "this is the default identity: make another one the default first",
                field="is_active",
            )
        _check(row)
        with lost_to(_taken("email", row.email)):
            row.save()
    return row


def set_default(*, identity: Identity, by: Asker) -> None:
    """Make this the identity that is meant where none is named. Operator only."""
    require_operator(by=by, act="choose the default identity")
    with unit_of_work():
        # All rows, in one order: two who choose at once come one after the other.
        rows = {row.pk: row for row in Identity.objects.select_for_update().order_by("pk")}
        if not rows[identity.pk].is_active:
            raise InvalidInput(f"{identity.handle} is switched off", field="is_default")
        Identity.objects.filter(is_default=True).exclude(pk=identity.pk).update(is_default=False)
        Identity.objects.filter(pk=identity.pk).update(is_default=True)


def _readable(fields: IdentityFields) -> IdentityFields:
    """The fields in the form that is stored."""
    read = fields.copy()
    if "email" in read:
        read["email"] = normalise_exact(read["email"], field="email")
        if is_pattern(read["email"]):
            raise InvalidInput("an identity has one exact address", field="email")
    if "openpgp_fingerprint" in read:
        read["openpgp_fingerprint"] = "".join(read["openpgp_fingerprint"].split()).upper()
    if read.get("passphrase_ref"):
        secrets.validate_reference(read["passphrase_ref"])
    return read


def _taken(field: str, value: str) -> Conflict:
    return Conflict(f"{value} is another identity's", field=field, rule=Refusal.ADDRESS_TAKEN)


def _check(identity: Identity) -> None:
    others = Identity.objects.exclude(pk=identity.pk)
    for field, value in (("handle", identity.handle), ("email", identity.email)):
        if others.filter(**{f"{field}__iexact": value}).exists():
            raise _taken(field, value)
    try:
        identity.full_clean(validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        field, sentences = next(iter(error.message_dict.items()))
        raise InvalidInput(f"{field}: {' '.join(sentences)}", field=field) from error
