"""Plain values that cross approvals' border: what a kind of act freezes, and how a contact ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from guards.types import Asker, Subject


class ContactOutcome(StrEnum):
    """How one contact with the outside ended, as far as we can be certain."""

    ACCEPTED = "accepted"
    VERIFIED = "verified"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Contact(StrEnum):
    """One request to a provider, by what it asks. Each is counted before it is made."""

    REFRESH = "refresh"
    USERINFO = "userinfo"
    PROFILE = "profile"
    READ = "read"
    POST = "post"
    LIST = "list"
    GET = "get"


class Purpose(StrEnum):
    """What a finite grant is for."""

    CONNECT = "connect"
    PREVIEW = "preview"
    EXECUTE = "execute"
    RECOVER = "recover"


class Grant(Protocol):
    """The right to make contacts, handed to a kind by the engine for one job."""

    def spend(self, contact: Contact) -> None:
        """Count one contact, immediately before it is made. ContactRefused: then it is not made."""
        ...

    def seconds_left(self) -> float:
        """Until the job's deadline; 0.0 when it is over."""
        ...


@dataclass(frozen=True, slots=True)
class BoundConnection:
    """A connection at the revision that a grant binds."""

    id: UUID
    revision: int


@dataclass(frozen=True, slots=True)
class Observed:
    """What a provider said of a connection: its scopes, canonical, and their digest; whose it is.

    `subject` is empty where the provider tells nobody; `address` is the mailbox, exactly as told.
    """

    scopes: tuple[str, ...]
    digest: str
    subject: str
    address: str


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
class Act:
    """An intent in the hands of the one process that may carry it out, proved by its digest."""

    effect_id: UUID
    subject: Subject
    payload: bytes
    facts: Mapping[str, object]
    grant: Grant


@dataclass(frozen=True, slots=True)
class Request:
    """A wish to act: of which kind, about what, for whom, answering what."""

    kind: str
    subject: Subject
    requested_by: Asker
    source: Subject | None = None
    account: Subject | None = None
    project: str = ""
