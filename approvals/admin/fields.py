"""What the pages of the sign-off desk share: names of kinds, and previews as fields to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from approvals.registry import kinds
from approvals.services.details import reason_of


def kind_label(name: str) -> str:
    """What people call a kind of act."""
    kind = kinds().get(name)
    return kind.label if kind else name


def reason_given(request: HttpRequest) -> str:
    """The reason of a form; InvalidInput without one."""
    given = request.POST.get("reason", "")
    return reason_of(given, otherwise="say why: the reason goes back to whoever asked")


#: The fields of a preview in the order in which a careful person reads them.
_FIELD_ORDER = (
    ("mailbox", "Mailbox, as verified"),
    ("from", "From"),
    ("from_name", "Name beside it"),
    ("to", "To"),
    ("cc", "Cc"),
    ("bcc", "Bcc"),
    ("reply_to", "Reply-To of the source, not used"),
    ("subject", "Subject"),
    ("date", "Date"),
    ("message_id", "Message-ID"),
    ("thread", "Thread"),
    ("in_reply_to", "In-Reply-To"),
    ("references", "References"),
    ("account", "Account"),
    ("signed", "Signed"),
    ("automatic", "Marked as automatic"),
    ("headers", "Other headers"),
    ("outcome", "At best it ends as"),
    ("size", "Bytes"),
    ("mime_sha256", "SHA-256 of it all"),
)
_ELSEWHERE = frozenset({"text", "attachments", "source"})


def fields_of(preview: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Every field of a preview with its values: known ones first, then what else there is."""
    known = [(label, preview[key]) for key, label in _FIELD_ORDER if key in preview]
    names = {key for key, _ in _FIELD_ORDER} | _ELSEWHERE
    rest = [
        (key.replace("_", " ").capitalize(), preview[key]) for key in preview if key not in names
    ]
    return [(label, _readable(value)) for label, value in known + rest]


def source_of(preview: dict[str, Any]) -> Mapping[str, Any] | None:
    """Take what is answered out of a preview. A thread that its provider names is the one shown."""
    source = preview.pop("source", None)
    if not isinstance(source, Mapping):
        return None
    at_provider = source.get("gmail")
    if isinstance(at_provider, Mapping):
        preview["thread"] = at_provider.get("thread_id")
    return source


def _readable(value: object) -> list[str]:
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    return [str(value)] if value not in (None, "") else []
