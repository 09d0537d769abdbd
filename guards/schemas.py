"""What the API shows of guards' rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Field, Schema

from guards.models import ApiToken, Contact, Decision, Identity, Permission, PinnedKey


class IdentityOut(Schema):
    """An identity. Neither its key's home nor its passphrase's reference is shown."""

    handle: str
    name: str
    kind: str
    email: str
    openpgp_fingerprint: str
    reply_policy: str
    recipient_binding: str
    is_default: bool
    is_active: bool

    @classmethod
    def of(cls, row: Identity) -> IdentityOut:
        """From the row."""
        return cls.model_validate(row, from_attributes=True)


class RightsOut(Schema):
    """What a contact may ask of one identity."""

    identity: str = Field(..., examples=["claude"])
    rwx: str = Field(..., examples=["r--"])

    @classmethod
    def of(cls, row: Permission) -> RightsOut:
        """From the row."""
        return cls(identity=row.identity.handle, rwx=str(row.rwx))


class PinOut(Schema):
    """A key that counts for a contact."""

    fingerprint: str
    uid: str
    expires_at: datetime | None

    @classmethod
    def of(cls, row: PinnedKey) -> PinOut:
        """From the row."""
        return cls(fingerprint=row.fingerprint, uid=row.uid, expires_at=row.expires_at)


class ContactOut(Schema):
    """One entry of the address book; `rights` are those that the caller may see."""

    id: int
    name: str
    address: str = Field(..., examples=["*@mail.example.org"])
    is_pattern: bool
    aliases: list[str]
    pins: list[PinOut]
    rights: list[RightsOut]

    @classmethod
    def of(cls, row: Contact) -> ContactOut:
        """From the row, with its prefetched relations."""
        return cls(
            id=row.pk,
            name=row.name,
            address=row.address,
            is_pattern=row.is_pattern,
            aliases=[alias.address for alias in row.aliases.all()],
            pins=[PinOut.of(pin) for pin in row.pins.all()],
            rights=[RightsOut.of(permission) for permission in row.permissions.all()],
        )


class DecisionOut(Schema):
    """One answer to one question, as it was recorded."""

    id: int
    at: datetime
    asker: str
    action: str
    subject_type: str
    subject_id: str
    identity: str | None
    sender: str
    permission: str
    verdict: str = Field(..., examples=["hold"])
    rule: str = Field(..., examples=["trust-too-low"])
    evidence: dict[str, Any]

    @classmethod
    def of(cls, row: Decision) -> DecisionOut:
        """From the row."""
        return cls(
            id=row.pk,
            at=row.at,
            asker=row.asker,
            action=row.action,
            subject_type=row.subject_type,
            subject_id=row.subject_id,
            identity=row.identity.handle if row.identity else None,
            sender=row.sender,
            permission=row.permission,
            verdict=row.verdict,
            rule=row.rule,
            evidence=row.evidence,
        )


class DecisionPage(Schema):
    """Decisions, newest first."""

    items: list[DecisionOut]
    next_cursor: str | None


class ContactPage(Schema):
    """Contacts, in the order in which they were added."""

    items: list[ContactOut]
    next_cursor: str | None


class IdentityPage(Schema):
    """Identities, in the order in which they were created."""

    items: list[IdentityOut]
    next_cursor: str | None


class WhoAmI(Schema):
    """The caller's own token and whose it is. The secret is not known here."""

    prefix: str
    label: str
    scopes: list[str]
    identity: str | None
    name: str | None
    kind: str | None
    project: str
    expires_at: datetime | None

    @classmethod
    def of(cls, row: ApiToken) -> WhoAmI:
        """From the row."""
        return cls(
            prefix=row.prefix,
            label=row.label,
            scopes=row.scopes,
            identity=row.identity.handle if row.identity else None,
            name=row.identity.name if row.identity else None,
            kind=row.identity.kind if row.identity else None,
            project=row.project,
            expires_at=row.expires_at,
        )
