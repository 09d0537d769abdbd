"""Plain values that cross approvals' border: what a kind of act freezes, and how a contact ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from guards.types import Asker, Subject


class ContactOutcome(StrEnum):
    """How one contact with the outside ended, as far as we can be certain."""

    ACCEPTED = "accepted"
    VERIFIED = "verified"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Frozen:
    """Exactly what will happen: the bytes that would leave and what a person reads about them.

    `payload` is what the contact sends, byte for byte; it is kept encrypted. `facts` are the fields
    that `digest` binds beside the payload (recipients, message id, account and its revision …), all
    JSON. `preview` is what a person is shown, JSON too, kept encrypted as well.
    """

    payload: bytes
    facts: Mapping[str, object]
    preview: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ContactResult:
    """What the one contact brought.

    `reason` is a stable word (`smtp-250`, `connection-lost-after-data`); `detail` JSON facts for
    the operator: reply codes, refused recipients. Never a body.
    """

    outcome: ContactOutcome
    reason: str
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """A wish to act: of which kind, about what, for whom, answering what."""

    kind: str
    subject: Subject
    requested_by: Asker
    source: Subject | None = None
    account: Subject | None = None
    project: str = ""
