"""Freezing a subject: the exact bytes, what they mean, and the digest that binds both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import rfc8785

from approvals import registry, sealing
from approvals.exceptions import ArtifactUnreadable
from approvals.models import Approval, Artifact, Effect
from approvals.registry import NOTHING
from approvals.types import Frozen, Grant, Request
from guards.types import Subject


@dataclass(frozen=True, slots=True)
class SealedRequest:
    """A request with its frozen subject, encrypted but not stored yet."""

    request: Request
    digest: str
    facts: Artifact
    payload: Artifact
    preview: Artifact
    clear_facts: Mapping[str, object]

    def artifacts(self) -> tuple[Artifact, Artifact, Artifact]:
        """What has to be stored before an approval may refer to it."""
        return self.facts, self.payload, self.preview

    def columns(self) -> dict[str, Any]:
        """An approval's columns."""
        return {
            **request_columns(self.request),
            "digest": self.digest,
            "facts": self.facts,
            "payload": self.payload,
            "preview": self.preview,
            "requested_by": str(self.request.requested_by),
        }


def freeze(request: Request, grant: Grant = NOTHING) -> SealedRequest:
    """Take the snapshot that a person or a policy would approve. Outside any transaction."""
    frozen = registry.kind(request.kind).freeze(request.subject, grant)
    facts = rfc8785.dumps(dict(frozen.facts))  # type: ignore[arg-type]
    return SealedRequest(
        request=request,
        digest=digest_of(request, frozen),
        facts=sealing.encrypt(facts),
        payload=sealing.encrypt(frozen.payload),
        preview=sealing.encrypt(json.dumps(dict(frozen.preview)).encode()),
        clear_facts=json.loads(facts),
    )


def digest_of(request: Request, frozen: Frozen) -> str:
    """SHA-256, hex, over everything that decides what will happen: one flipped bit is another."""
    return _digest(request_columns(request), dict(frozen.facts), sha256(frozen.payload).hexdigest())


def digest_of_use(approval: Approval, use: Frozen) -> str:
    """The digest that a use of a permission has: the approval's own where it is exactly that."""
    return _digest(shared_columns(approval), dict(use.facts), sha256(use.payload).hexdigest())


def open_facts(row: Approval | Effect) -> dict[str, object]:
    """The facts that the digest binds. Outside any transaction."""
    facts: dict[str, object] = json.loads(sealing.unseal(row.facts))
    return facts


def open_intent(effect: Effect) -> tuple[bytes, dict[str, object]]:
    """Payload and facts of an effect, proved against its digest; ArtifactUnreadable otherwise."""
    payload = _opened(effect.payload, "payload")
    facts: dict[str, object] = json.loads(_opened(effect.facts, "facts"))
    columns = shared_columns(effect)
    if _digest(columns, facts, sha256(payload).hexdigest()) != effect.digest:
        approved = shared_columns(effect.approval)
        changed = next((name for name in columns if columns[name] != approved[name]), "digest")
        raise ArtifactUnreadable(
            f"effect {effect.pk} does not hold what was approved", field=changed
        )
    return payload, facts


def _opened(artifact: Artifact, field: str) -> bytes:
    try:
        return sealing.unseal(artifact)
    except ArtifactUnreadable as error:
        raise ArtifactUnreadable(error.detail, field=field) from error


_REQUEST_COLUMNS = (
    "kind",
    "subject_type",
    "subject_id",
    "source_type",
    "source_id",
    "account_type",
    "account_id",
    "project",
)


def request_columns(request: Request) -> dict[str, str]:
    """The columns that Hold, Approval and Effect share."""
    nothing = Subject("", "")
    source, account = request.source or nothing, request.account or nothing
    return {
        "kind": request.kind,
        "subject_type": request.subject.type,
        "subject_id": request.subject.id,
        "source_type": source.type,
        "source_id": source.id,
        "account_type": account.type,
        "account_id": account.id,
        "project": request.project,
    }


def shared_columns(row: Any) -> dict[str, str]:
    """The same columns, taken from a row that has them."""
    return {name: getattr(row, name) for name in _REQUEST_COLUMNS}


def subject_of(row: Any) -> Subject:
    """What a hold, an approval or an effect is about."""
    return Subject(row.subject_type, row.subject_id)


def _digest(columns: Mapping[str, str], facts: Mapping[str, object], payload: str) -> str:
    document: dict[str, Any] = {"request": dict(columns), "facts": facts, "payload_sha256": payload}
    return sha256(rfc8785.dumps(document)).hexdigest()
