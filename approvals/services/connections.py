"""Connections: credentials of an account at a provider, by secret reference, for exactly one use.

Imported by a person, proved by the provider within a finite grant, replaced as a new revision,
revoked for good. Neither a secret nor a token is ever stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from django.db.models import F

from approvals import registry, signals
from approvals.clock import database_now
from approvals.exceptions import Blocked, ContactRefused
from approvals.models import Approval, Connection, Goal, Hold, Job, Root
from approvals.services import authority, goals, people, transitions
from approvals.services.details import reason_of
from approvals.types import BoundConnection, Observed, Purpose
from guards import secrets
from guards.exceptions import Conflict, CountersignError, InvalidInput, NotFound
from guards.services.units import unit_of_work
from guards.types import Asker, Subject

#: Uses that are verified together: they have to belong to one account of the provider.
GROUPS: Mapping[str, tuple[Connection.Use, ...]] = {
    "reply": (Connection.Use.READ, Connection.Use.SEND),
    "readonly": (Connection.Use.READONLY,),
}


def import_connection(
    *,
    account: Subject,
    use: str,
    client_id: str,
    client_secret_ref: str,
    refresh_token_ref: str,
    by: Asker,
    root: Root | None,
) -> Connection:
    """Connect an account for one use, or replace the credentials that it has for it.

    References only: InvalidInput names the field that is none, or that looks like a secret itself;
    SecretUnavailable where one does not resolve. What was replaced is another revision: approvals
    and grants that rest on the old one are void, and it has to be verified anew.
    """
    people.require_person(by)
    provider = registry.provider(account.type)
    fields = {
        "client_id": _one_line(client_id),
        "client_secret_ref": _resolvable(client_secret_ref, "client_secret_ref"),
        "refresh_token_ref": _resolvable(refresh_token_ref, "refresh_token_ref"),
        "declared": list(provider.declared(_use(use))),
    }
    with unit_of_work(durable=True):
        _require_session(root, by)
        provider.require_account(account)
        current = _standing(account).filter(use=use).first()
        if current is not None:
            return _replace(current, fields, by=by)
        created = Connection.objects.create(
            id=uuid4(),
            account_type=account.type,
            account_id=account.id,
            use=use,
            created_at=database_now(),
            created_by=str(by),
            **fields,
        )
        _announce(created, "imported", by)
    return created


def verify(*, account: Subject, group: str, by: Asker, root: Root | None) -> list[Connection]:
    """Ask the provider whose an account's connections are and what they may do; at most 5 contacts.

    `group` is a key of GROUPS. All of it is verified, or none: Blocked (from the provider) and
    ContactRefused (no live session, grant used up) say why, and the reason stays at the connection.
    """
    people.require_person(by)
    if root is None:
        raise ContactRefused(authority.SESSION_UNAVAILABLE, field="root")
    provider = registry.provider(account.type)
    asked = _group(account, group)
    goal = goals.begin(root=root, by=by, kind=Goal.Kind.CONNECT, about=account)
    try:
        with goals.granted_job(
            kind=Job.Kind.CONNECT,
            purpose=Purpose.CONNECT,
            goal=goal,
            caps=provider.caps,
            connections=[BoundConnection(one.pk, one.revision) for one in asked],
        ) as grant:
            observed = provider.verify(asked, grant)
            _record_verified(asked, observed, goal=goal, by=by)
    except (Blocked, ContactRefused) as error:
        if error.reason not in _OF_OUR_SIDE:
            _record_unverified(asked, error, by=by)
        raise
    finally:
        goals.close(goal)
    return _group(account, group)


def revoke(*, connection_id: UUID | str, by: Asker, reason: str) -> Connection:
    """Take a connection out of use for good: nothing is contacted with it any more.

    Approvals that rest on it are void, grants that bind it are refused at their next contact.
    Revoking twice changes nothing.
    """
    people.require_person(by)
    reason = reason_of(reason, otherwise="say why this connection is revoked")
    with unit_of_work(durable=True):
        found = _locked(connection_id)
        moved = (
            Connection.objects.filter(pk=found.pk)
            .exclude(state=Connection.State.REVOKED)
            .update(
                state=Connection.State.REVOKED,
                revision=F("revision") + 1,
                revoked_at=database_now(),
                revoked_by=str(by),
                revoked_reason=reason,
            )
        )
        found.refresh_from_db()
        if moved:
            _void_what_rests_on(found)
            _announce(found, "revoked", by)
    return found


def _replace(current: Connection, fields: Mapping[str, object], *, by: Asker) -> Connection:
    """Other credentials are another revision, unverified, whoever they belong to."""
    locked = _locked(current.pk)
    Connection.objects.filter(pk=locked.pk).update(
        **fields,
        state=Connection.State.NEW,
        revision=F("revision") + 1,
        reason="",
        observed=[],
        observed_digest="",
        subject="",
        address="",
        verified_at=None,
    )
    locked.refresh_from_db()
    _void_what_rests_on(locked)
    _announce(locked, "replaced", by)
    return locked


def _record_verified(
    asked: Sequence[Connection], observed: Mapping[UUID, Observed], *, goal: Goal, by: Asker
) -> None:
    """What the provider said, of all or none; only where nothing was changed while it was asked."""
    with unit_of_work(durable=True):
        authority.require_root(goal.root_id)
        authority.require_goal(goal.pk, root_id=goal.root_id, revision=goal.revision)
        for one in asked:
            seen = observed.get(one.pk)
            if seen is None or not seen.digest or not seen.address:
                raise Blocked("not_observed", field="connection")
            _write_verified(one, seen, by=by)


def _write_verified(one: Connection, seen: Observed, *, by: Asker) -> None:
    """A connection that says the same as before keeps its revision: nothing about it changed."""
    now = database_now()
    found = _locked(one.pk)
    if (found.revision, found.state) != (one.revision, one.state):
        raise ContactRefused("connection_changed", field="connection")
    said: dict[str, object] = {
        "observed": list(seen.scopes),
        "observed_digest": seen.digest,
        "subject": seen.subject,
        "address": seen.address,
    }
    is_same = found.state == Connection.State.VERIFIED and all(
        getattr(found, name) == value for name, value in said.items()
    )
    Connection.objects.filter(pk=found.pk).update(
        **said,
        state=Connection.State.VERIFIED,
        reason="",
        verified_at=now,
        revision=F("revision") if is_same else F("revision") + 1,
    )
    found.refresh_from_db()
    if not is_same:
        _void_what_rests_on(found)
    _announce(found, "verified", by)


def _record_unverified(
    asked: Sequence[Connection], error: Blocked | ContactRefused, *, by: Asker
) -> None:
    """Why they were not verified. One that was before is so no longer, unless nobody answered."""
    is_passing = not getattr(error.__cause__, "permanent", True)
    with unit_of_work(durable=True):
        for one in asked:
            found = _locked(one.pk)
            if found.revision != one.revision or found.state == Connection.State.REVOKED:
                continue
            was_verified = found.state == Connection.State.VERIFIED
            changes: dict[str, Any] = {"reason": error.reason[:64]}
            if was_verified and not is_passing:
                changes |= {
                    "state": Connection.State.NEEDS_RECONNECT,
                    "revision": F("revision") + 1,
                }
            Connection.objects.filter(pk=found.pk).update(**changes)
            found.refresh_from_db()
            if was_verified and not is_passing:
                _void_what_rests_on(found)
            _announce(found, "unverified", by)


#: Reasons that say something of our session or grant, and nothing of the credential.
_OF_OUR_SIDE = frozenset(
    {
        authority.SESSION_UNAVAILABLE,
        authority.AUTHORITY_REVOKED,
        authority.JOB_NOT_HELD,
        "goal_closed",
        "goal_changed",
        "goal_deleted",
        "goal_reassigned",
        "consent_expired",
        "consent_changed",
        "connection_changed",
        "connection_unavailable",
        "contacts_used_up",
        "deadline_passed",
    }
)


def _void_what_rests_on(changed: Connection) -> None:
    """Open approvals whose review looked through it, or whose yes would bind it, are superseded.

    After the connection is locked: their holds and they come later in the order.
    """
    about_account = Approval.objects.filter(
        state__in=Approval.OPEN,
        goal__isnull=False,
        account_type=changed.account_type,
        account_id=changed.account_id,
    )
    resting = [one for one in about_account.order_by("created_at") if _rests_on(one, changed)]
    for approval in resting:
        if approval.hold_id is not None:
            Hold.objects.select_for_update().get(pk=approval.hold_id)
        again = Approval.objects.select_for_update().get(pk=approval.pk)
        if again.state in Approval.OPEN:
            transitions.move_approval(again, state=Approval.State.SUPERSEDED, drifted="connection")


def _rests_on(approval: Approval, changed: Connection) -> bool:
    """Whether its kind needs authority at all: others go another way than a connection's."""
    return bool(registry.caps(approval.kind, Purpose.EXECUTE)) and (
        changed.use != Connection.Use.READONLY
    )


def _require_session(root: Root | None, by: Asker) -> None:
    """A console import stands under its live session; a command's has none."""
    if root is not None and authority.require_root(root.pk).principal != str(by):
        raise ContactRefused(authority.SESSION_UNAVAILABLE, field="root")


def _group(account: Subject, group: str) -> list[Connection]:
    uses = GROUPS.get(group)
    if uses is None:
        raise InvalidInput(f"verify one of {', '.join(sorted(GROUPS))}", field="group")
    found = {one.use: one for one in _standing(account).filter(use__in=uses)}
    absent = [use for use in uses if use not in found]
    if absent:
        raise NotFound(f"{account} has no connection to {absent[0]} yet", field="use")
    return [found[use] for use in uses]


def _standing(account: Subject) -> Any:
    rows = Connection.objects.filter(account_type=account.type, account_id=account.id)
    return rows.exclude(state=Connection.State.REVOKED)


def _locked(connection_id: UUID | str) -> Connection:
    found = Connection.objects.select_for_update().filter(pk=connection_id).first()
    if found is None:
        raise NotFound(f"there is no connection {connection_id}", field="connection")
    return found


def _announce(connection: Connection, change: str, by: Asker) -> None:
    signals.connection_changed.send(
        sender=Connection, connection=connection, change=change, by=str(by)
    )


def _use(use: str) -> str:
    if use not in Connection.Use.values:
        raise InvalidInput(f"a use is one of {', '.join(Connection.Use.values)}", field="use")
    return use


def _one_line(client_id: str) -> str:
    cleaned = client_id.strip()
    if not cleaned or len(cleaned) > 255 or not cleaned.isprintable() or " " in cleaned:
        raise InvalidInput("a client id is one word of at most 255 characters", field="client_id")
    return cleaned


def _resolvable(reference: str, field: str) -> str:
    """The reference, if it is one and resolves now. Outside any transaction."""
    try:
        secrets.validate_reference(reference)
        secrets.resolve(reference)
    except InvalidInput as error:
        raise InvalidInput(error.detail, field=field) from error
    except CountersignError as error:
        raise Conflict(error.detail, field=field, rule=error.code) from error
    return reference
