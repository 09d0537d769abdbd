"""The hash chain: which bytes of an event are hashed, and how one event is tied to the next.

The hashed bytes are the RFC 8785 form of one flat object. They are put together by hand, since the
keys are known and sorted, and `facts` is canonical text already: a verifier passes over some
hundred thousand events per second this way.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from json.encoder import encode_basestring as quoted

#: What the first event ties to.
ORIGIN = "0" * 64


def moment(at: datetime) -> str:
    """A time as the chain writes it: UTC, microseconds, always the same length."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return at.isoformat(timespec="microseconds")


def link(
    seq: int,
    at: str,
    kind: str,
    subject_type: str,
    subject_id: str,
    actor: str,
    project: str,
    project_seq: int | None,
    facts: str,
    prev_hash: str,
) -> str:
    """The hash of one event, 64 hex digits. `at` comes from `moment`, `facts` is canonical text."""
    text = (
        f'{{"actor":{quoted(actor)},"at":"{at}","facts":{facts},"kind":{quoted(kind)},'
        f'"prev_hash":{quoted(prev_hash)},"project":{quoted(project)},'
        f'"project_seq":{"null" if project_seq is None else project_seq},"seq":{seq},'
        f'"subject_id":{quoted(subject_id)},"subject_type":{quoted(subject_type)}}}'
    )
    return sha256(text.encode()).hexdigest()
