"""Granting says what changed, to whom, by whom; and a pattern never holds more than read."""

from __future__ import annotations

import pytest

from guards.exceptions import InvalidInput
from guards.models import Permission
from guards.services import permissions
from guards.signals import permission_changed
from guards.types import NOTHING, Refusal, Rwx
from tests.guards.factories import OPERATOR, ContactFactory, IdentityFactory

pytestmark = pytest.mark.django_db


def test_a_grant_is_announced_once_and_its_repetition_is_not() -> None:
    identity, contact = IdentityFactory(), ContactFactory()
    heard: list[str] = []

    def listen(permission: Permission, **_: object) -> None:
        heard.append(str(permission.rwx))

    permission_changed.connect(listen)
    try:
        for rwx in (NOTHING, Rwx(True, True), Rwx(True, True), NOTHING):
            permissions.grant(identity=identity, contact=contact, rwx=rwx, by=OPERATOR)
    finally:
        permission_changed.disconnect(listen)
    assert heard == ["rw-", "---"]
    row = Permission.objects.get()
    assert (str(row.rwx), row.granted_by) == ("---", "operator:ada")


@pytest.mark.parametrize("rwx", ["-w-", "--x", "rwx"])
def test_it_refuses_a_pattern_contact_with_write_or_execute(rwx: str) -> None:
    pattern = ContactFactory(address="*@example.org")
    with pytest.raises(InvalidInput) as refused:
        permissions.grant(
            identity=IdentityFactory(), contact=pattern, rwx=Rwx.parse(rwx), by=OPERATOR
        )
    assert refused.value.rule == Refusal.PATTERN_READ_ONLY
    assert not Permission.objects.exists()
    permissions.grant(identity=IdentityFactory(), contact=pattern, rwx=Rwx(read=True), by=OPERATOR)
    assert str(Permission.objects.get().rwx) == "r--"
