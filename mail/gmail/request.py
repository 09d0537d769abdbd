"""The one JSON resource that is posted: the frozen message and the thread that it answers.

Both are in the bytes, so both are in the digest that was approved. Where the thread is missing or
another one, the bytes are refused before any contact.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

from mail.exceptions import ProfileRefused
from mail.gmail import mime_check
from mail.gmail.reasons import Reason

#: 16 KiB of MIME as base64url, the thread's id, and the braces.
MAX_BYTES = 32 * 1024

_THREAD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+={0,2}")


def build(mime: bytes, thread_id: str) -> bytes:
    """The exact bytes of the request's body: no space, `raw` first, padded base64url."""
    if not _THREAD_ID.fullmatch(thread_id):
        raise ProfileRefused(Reason.THREAD_ID_MISSING, field="thread_id")
    raw = urlsafe_b64encode(mime).decode("ascii")
    return f'{{"raw":"{raw}","threadId":"{thread_id}"}}'.encode("ascii")


def read(payload: bytes) -> tuple[bytes, str]:
    """Message and thread id of a request in the one form that is sent; ProfileRefused otherwise."""
    resource = _resource(payload)
    if "threadId" not in resource:
        raise ProfileRefused(Reason.THREAD_ID_MISSING, field="thread_id")
    if set(resource) != {"raw", "threadId"}:
        raise ProfileRefused(Reason.REQUEST_MALFORMED, "other members", field="request")
    raw, thread_id = resource["raw"], resource["threadId"]
    if not isinstance(thread_id, str) or not _THREAD_ID.fullmatch(thread_id):
        raise ProfileRefused(Reason.THREAD_ID_MISSING, field="thread_id")
    if not isinstance(raw, str) or not _BASE64URL.fullmatch(raw) or len(raw) % 4:
        raise ProfileRefused(Reason.REQUEST_MALFORMED, "no base64url", field="raw")
    mime = urlsafe_b64decode(raw)
    if build(mime, thread_id) != payload:
        raise ProfileRefused(Reason.REQUEST_NOT_EXACT, field="request")
    return mime, thread_id


def require_approved(payload: bytes, facts: Mapping[str, object]) -> mime_check.Letter:
    """What the request says, if it is exactly what was approved; ProfileRefused names the field."""
    mime, thread_id = read(payload)
    if thread_id != facts.get("thread_id"):
        raise ProfileRefused(Reason.THREAD_ID_DIFFERS, field="thread_id")
    return mime_check.require_approved(mime, facts)


def _resource(payload: bytes) -> dict[str, object]:
    if len(payload) > MAX_BYTES:
        raise ProfileRefused(Reason.REQUEST_MALFORMED, "too large", field="request")
    try:
        resource = json.loads(payload.decode("ascii"), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise ProfileRefused(Reason.REQUEST_MALFORMED, field="request") from error
    if not isinstance(resource, dict):
        raise ProfileRefused(Reason.REQUEST_MALFORMED, field="request")
    return resource


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice")
    return members
