"""Operators' sessions as authority: minted at login, kept alive by the console, ended, revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase

from approvals import signals
from approvals.clock import database_now
from approvals.models import Root
from approvals.services import authority, people
from guards.exceptions import NotFound
from guards.services.units import unit_of_work
from guards.types import Asker

#: Where a Django session keeps the id of its Root; `cycle_key` carries it along.
SESSION_KEY = "approvals_root"


def mint(*, user: Any, principal: Asker) -> Root:
    """The Root of a new login. Its absolute end is fixed now and never moves."""
    with unit_of_work():
        now = database_now()
        expires_at = now + timedelta(hours=settings.ROOT_HOURS)
        root = Root.objects.create(
            user=user,
            principal=str(principal),
            created_at=now,
            expires_at=expires_at,
            idle_until=min(expires_at, now + timedelta(minutes=settings.ROOT_IDLE_MINUTES)),
            login_digest=authority.login_digest(user),
        )
        signals.root_changed.send(sender=Root, root=root, change="minted", by=str(principal))
    return root


def of_session(session: SessionBase) -> Root | None:
    """The Root of a Django session, whatever state it is in; None where none was minted."""
    root_id = session.get(SESSION_KEY)
    return Root.objects.select_related("user").filter(pk=root_id).first() if root_id else None


def is_live(root: Root) -> bool:
    """Whether a session may still be acted under, by the database's clock."""
    return not authority.why_over(root)


def touch(root: Root) -> None:
    """The console was used: idleness begins anew. Never past the absolute end."""
    now = database_now()
    until = min(root.expires_at, now + timedelta(minutes=settings.ROOT_IDLE_MINUTES))
    # Not at each request: a minute's precision is enough, and most requests write nothing.
    if until <= root.idle_until:
        return
    if until - root.idle_until >= timedelta(minutes=1) or until == root.expires_at:
        Root.objects.filter(pk=root.pk, idle_until__gt=now, ended_at=None, revoked_at=None).update(
            idle_until=until
        )


def keep_login(root: Root, user: Any) -> None:
    """Carry a session on through its own user's new password.

    Only for a session that was just authenticated with it: every other one has ended.
    """
    digest = authority.login_digest(user)
    if root.login_digest != digest and root.user_id == user.pk:
        Root.objects.filter(pk=root.pk, ended_at=None, revoked_at=None).update(login_digest=digest)
        root.login_digest = digest


def end(*, root_id: UUID | str, by: Asker) -> None:
    """A logout, or another login in the same browser. Ending twice changes nothing."""
    _close(root_id, "ended_at", {}, change="ended", by=by)


def revoke(*, root_id: UUID | str, by: Asker, reason: str = "") -> None:
    """Take a session's authority away for good: a look again says so, and contacts nothing."""
    people.require_person(by)
    fields = {"revoked_by": str(by), "revoked_reason": reason.strip()}
    _close(root_id, "revoked_at", fields, change="revoked", by=by)


def _close(
    root_id: UUID | str, column: str, fields: dict[str, str], *, change: str, by: Asker
) -> None:
    with unit_of_work():
        root = Root.objects.select_for_update().filter(pk=root_id).first()
        if root is None:
            raise NotFound(f"there is no session {root_id}", field="root")
        ended = {column: database_now(), **fields}
        if Root.objects.filter(pk=root.pk, **{column: None}).update(**ended):
            root.refresh_from_db()
            signals.root_changed.send(sender=Root, root=root, change=change, by=str(by))
