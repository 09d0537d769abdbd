"""What is served out of a message: HTML for its frame, parts and source as downloads. GET only.

Nothing here trusts a name or a type from mail: the frame gets sanitised HTML under a policy of its
own, and everything else leaves as an attachment of no particular type.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from csp.constants import NONE, SELF, UNSAFE_INLINE
from csp.decorators import csp
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.http import content_disposition_header
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_safe

from mail import selectors
from mail.exceptions import RawMissing
from mail.mime.html import sanitised
from mail.models import Message, OutboundFile
from mail.services import enclosures

#: No script, no plugin, no form, no request to anywhere; only inline styles and embedded pictures.
FRAME_POLICY: dict[str, list[Any]] = {
    "default-src": [NONE],
    "img-src": ["data:"],
    "style-src": [UNSAFE_INLINE],
    "base-uri": [NONE],
    "form-action": [NONE],
    "frame-ancestors": [SELF],
    "sandbox": [""],
}

_FRAME = """<!doctype html>
<html><head><meta charset="utf-8"><meta name="referrer" content="no-referrer"><style>
body {{ font: 15px/1.55 system-ui, sans-serif; margin: 16px; color: #1b2430; background: #fff;
  overflow-wrap: anywhere }}
blockquote {{ border-left: 3px solid #d5dbe3; margin-left: 0; padding-left: 12px; color: #5b6675 }}
</style></head><body>{body}</body></html>"""

_UNSAFE_IN_NAMES = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def safe_name(name: str, number: str) -> str:
    """A file name for a browser: no path, no control or direction mark, never hidden or empty."""
    cleaned = _UNSAFE_IN_NAMES.sub("_", name)
    cleaned = re.sub(r"\.{2,}", ".", cleaned)[-120:].strip(" ._-")
    return cleaned or f"part-{number}.bin"


@xframe_options_sameorigin
@csp(FRAME_POLICY)  # type: ignore[arg-type]  # its annotation forgets views with arguments
@require_safe
def html_frame(request: HttpRequest, pk: int) -> HttpResponse:
    """The HTML of a message, for the sandboxed frame on its page."""
    message = _readable_message(request, pk)
    html = selectors.parsed(message).html
    if not html:
        raise Http404("this message has no HTML")
    return HttpResponse(_FRAME.format(body=sanitised(html)))


@require_safe
def part(request: HttpRequest, pk: int, part: str) -> HttpResponse:
    """One decoded leaf of a message, as a download."""
    message = _readable_message(request, pk)
    parsed = selectors.parsed(message)
    found = next((leaf for leaf in parsed.parts if leaf.path == part), None)
    if found is None:
        raise Http404("this message has no such part")
    return _download(found.content, safe_name(found.name or "", part))


@require_safe
def raw_source(request: HttpRequest, pk: int) -> HttpResponse:
    """The exact bytes as they arrived, as a download."""
    message = _readable_message(request, pk)
    return _download(selectors.raw(message), f"{message.account.name}-{message.number}.eml")


@require_safe
def outbound_file(request: HttpRequest, pk: UUID, position: int) -> HttpResponse:
    """One file that leaves with an outgoing message, as it would leave, as a download."""
    if not any(request.user.has_perm(f"mail.{verb}_outbound") for verb in ("view", "change")):
        raise PermissionDenied
    row = get_object_or_404(OutboundFile, outbound_id=pk, position=position)
    try:
        content = enclosures.content_of(row)
    except RawMissing as error:
        raise Http404("its bytes are not in the store") from error
    return _download(content, safe_name(row.name, str(position)))


def _readable_message(request: HttpRequest, pk: int) -> Message:
    if not any(request.user.has_perm(f"mail.{verb}_message") for verb in ("view", "change")):
        raise PermissionDenied
    message = get_object_or_404(Message.objects.select_related("account__identity"), pk=pk)
    if message.pk not in selectors.shown([message]):
        raise PermissionDenied("reveal the message first")
    return message


def _download(content: bytes, name: str) -> HttpResponse:
    response = HttpResponse(content, content_type="application/octet-stream")
    disposition = content_disposition_header(as_attachment=True, filename=name)
    response["Content-Disposition"] = disposition or "attachment"
    return response
