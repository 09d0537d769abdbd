"""Granting: what one contact may ask of one identity."""

from __future__ import annotations

from guards.exceptions import InvalidInput
from guards.models import Contact, Identity, Permission
from guards.services.authority import require_operator
from guards.services.units import unit_of_work
from guards.signals import permission_changed
from guards.types import NOTHING, Asker, Refusal, Rwx


def grant(*, identity: Identity, contact: Contact, rwx: Rwx, by: Asker) -> Permission:
    """Set a contact's rights for one identity; `---` takes them away (DES-012). Operator only.

    Nothing spreads to other identities. InvalidInput for `w` or `x` on a pattern (DES-019).
    Announces `permission_changed` where something changed.
    """
    require_operator(by=by, act="grant rights")
    return write(identity=identity, contact=contact, rwx=rwx, by=by)


def write(*, identity: Identity, contact: Contact, rwx: Rwx, by: Asker) -> Permission:
    """Write the row, for services of guards that have asked for authority themselves."""
    refuse_beyond_pattern(is_pattern=contact.is_pattern, rwx=rwx)
    with unit_of_work():
        row, created = Permission.objects.select_for_update().get_or_create(
            identity=identity, contact=contact
        )
        before = NOTHING if created else row.rwx
        if created or before != rwx:
            row.read, row.write, row.execute = rwx.read, rwx.write, rwx.execute
            row.granted_by = str(by)
            row.save()
        if before != rwx:
            permission_changed.send(sender=Permission, permission=row, by=str(by))
    return row


def refuse_beyond_pattern(*, is_pattern: bool, rwx: Rwx) -> None:
    """A pattern may hold read only: whoever can write from a domain would inherit more."""
    if is_pattern and (rwx.write or rwx.execute):
        raise InvalidInput(
            f"pattern contacts may only grant read permission (r--), got {rwx}",
            field="permission",
            rule=Refusal.PATTERN_READ_ONLY,
        )
