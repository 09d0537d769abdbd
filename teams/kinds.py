"""The kinds of events that teams writes itself: its own, and those of guards and approvals.

Meanings are sentences for people; `{fact}`, `{actor}` and `{subject}` are filled in by `sentences`.
"""

from __future__ import annotations

from teams.registry import register_event_kinds

GUARDS = {
    "decision.made": "{action} was decided for {subject}: {verdict}, by the rule {rule}.",
    "key.pinned": "{actor} pinned the key {fingerprint} to a contact.",
    "key.removed": "{actor} removed the pinned key {fingerprint} from a contact.",
    "key.revoked": "The pinned key {fingerprint} was revoked.",
    "permission.changed": "{actor} set the permission of a contact for {identity} to {rwx}.",
    "token.minted": "{actor} minted the API token {prefix}….",
    "token.revoked": "The API token {prefix}… was revoked.",
    "queue.refused": "The queue refused to run {path}: nobody registered it ({where}).",
}

APPROVALS = {
    "hold.opened": "A draft of {requested_by} waits for a person: {reason}.",
    "hold.closed": "A waiting draft was closed: {state}.",
    "approval.pending": "Exactly what would leave was frozen for {actor}: {subject}.",
    "approval.approved": "{actor} approved it: {kind}.",
    "approval.rejected": "{actor} rejected it.",
    "approval.changes_requested": "{actor} asked for changes.",
    "approval.expired": "An approval ran out before it was used.",
    "approval.superseded": "An approval became void: {drifted} changed since it was reviewed.",
    "approval.consumed": "An approval became its one act.",
    "effect.intent": "One act was written down, to be made once: {kind}.",
    "effect.marked": "The act has been marked: its one contact begins.",
    "effect.accepted": "The other side took it: {reason}.",
    "effect.verified": "It was read back independently: {reason}.",
    "effect.failed": "It did not leave, or was refused: {reason}.",
    "effect.unknown": "Nobody can tell whether it left: {reason}.",
    "effect.cancelled": "It was given up before any contact: {reason}.",
    "effect.acknowledged": "{actor} acknowledged an act whose outcome is unknown.",
    "effect.look_asked": "{actor} had an act of unknown outcome looked at again, read-only.",
    "effect.looked_at": "The look ended: {outcome} ({reason}). The act itself stays unknown.",
    "session.minted": "{actor} logged in: a session began.",
    "session.ended": "A session of {principal} ended.",
    "session.revoked": "{actor} revoked a session of {principal}.",
    "goal.begun": "{actor} set out to {kind}: {about}.",
    "goal.closed": "What was set out to do is done or given up: {kind} {about}.",
    "goal.deleted": "What was set out to do was deleted: {kind} {about}.",
    "grant.granted": "{actor} granted contacts to {purpose}, a finite number.",
    "grant.revoked": "{actor} took a grant to {purpose} back.",
    "connection.imported": "{actor} connected {account} for {use}, by secret references.",
    "connection.replaced": "{actor} replaced the credentials of {account} for {use}.",
    "connection.verified": "The {use} connection of {account} was verified.",
    "connection.unverified": "The {use} connection of {account} was not verified: {reason}.",
    "connection.needs_reconnect": "The {use} connection of {account} needs a person: {reason}.",
    "connection.revoked": "{actor} revoked the {use} connection of {account}.",
}

TEAMS = {
    "project.created": "{actor} created the project {slug}.",
    "project.changed": "{actor} changed the project {slug}.",
}


def register() -> None:
    """Name them all. Called once, in `ready()`."""
    register_event_kinds("guards", GUARDS)
    register_event_kinds("approvals", APPROVALS)
    register_event_kinds("teams", TEAMS)
