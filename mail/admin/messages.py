"""The messages' list and the page of one message: who it is from, why we think so, what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils.dateparse import parse_datetime
from django.utils.formats import date_format
from django.utils.timezone import localtime
from unfold.decorators import display

from guards.fronts.console import Act, PageAdmin, operator
from guards.models import Decision
from guards.types import Verdict
from mail import selectors
from mail.admin import downloads
from mail.admin.reading import Reading, read
from mail.listing import REDACTED as COVERED
from mail.models import Message
from mail.sentences import GLYPHS
from mail.services import messages as message_services

TRUST_LABELS = {
    f"{GLYPHS['trusted']} trusted": "info",
    f"{GLYPHS['verified']} verified": "success",
    f"{GLYPHS['unverified']} unverified": "warning",
    f"{GLYPHS['untrusted']} untrusted": "danger",
}
VERDICT_LABELS = {"allow": "success", "hold": "warning", "deny": "danger"}


def mark_shown(messages: Iterable[Message]) -> None:
    """Note at each message whether its subject and text are shown, by the permissions of now."""
    rows = list(messages)
    open_to_us = selectors.shown(rows)
    for message in rows:
        message.is_shown = message.pk in open_to_us  # type: ignore[attr-defined]


def subject_of(message: Message) -> str:
    """The subject, where `mark_shown` found that it may be seen; covered otherwise."""
    return (message.subject or "(no subject)") if getattr(message, "is_shown", False) else COVERED


@admin.register(Message)
class MessageAdmin(PageAdmin):
    """Everything that arrived, with its verdict."""

    page_template = "mail/message.html"
    empty_state = "Add an account, and its mail is read, judged and shown here."
    empty_icon = "inbox"
    list_display = (
        "show_subject",
        "show_sender",
        "show_trust",
        "show_verdict",
        "rule",
        "show_where",
    )
    list_display_links = ("show_subject",)
    list_filter = ("trust_level", "verdict", "rule", "trust_reason", "execution", "account")
    search_fields = ("sender", "sender_name", "message_id")
    search_help_text = "Sender, subject, text"
    date_hierarchy = "received_at"
    ordering = ("-received_at", "-id")
    list_select_related = ("account",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        """Lists never load bodies."""
        rows: QuerySet[Message] = super().get_queryset(request).select_related("account__identity")
        return rows.defer("text")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Message], search_term: str
    ) -> tuple[QuerySet[Message], bool]:
        """A search never matches text that is covered."""
        found, duplicates = super().get_search_results(request, queryset, search_term)
        if search_term.strip():
            open_to_us = Q(permission__startswith="r") | Q(revealed_at__isnull=False)
            words = Q(subject__icontains=search_term) | Q(text__icontains=search_term)
            matched = queryset.filter(open_to_us & words)
            found = found | matched.exclude(selectors.covered_senders(matched))
        return found, duplicates

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The list, with a note at each row whether it may be read."""
        changelist = super().get_changelist_instance(request)
        mark_shown(changelist.result_list)
        return changelist

    @display(description="Subject")
    def show_subject(self, message: Message) -> str:
        """The subject, where it may be seen."""
        return subject_of(message)

    @display(description="From", ordering="sender")
    def show_sender(self, message: Message) -> str:
        """The address first: a display name proves nothing."""
        return message.sender or "no single sender"

    @display(description="Trust", ordering="trust_level", label=TRUST_LABELS)
    def show_trust(self, message: Message) -> str:
        """The level with its glyph."""
        return f"{GLYPHS[message.trust_level]} {message.trust_level}"

    @display(description="Decided", ordering="verdict", label=VERDICT_LABELS)
    def show_verdict(self, message: Message) -> str:
        """The verdict's word."""
        return message.verdict

    @display(description="Received", ordering="received_at")
    def show_where(self, message: Message) -> str:
        """When, and into which mailbox under which number."""
        when = date_format(localtime(message.received_at), "j M, H:i")
        return f"{when} · {message.account.name}/{message.number}"

    def acts(self) -> Mapping[str, Act]:
        """Reveal what is covered; let held work go on after all; leave it held, and be done."""
        return {
            "reveal": self.reveal,
            "release": self.release,
            "set_aside": self.set_aside,
            "set_aside_sender": self.set_aside_sender,
        }

    def reveal(self, request: HttpRequest, object_id: str) -> str:
        """Uncover subject and text: a Decision of the operator's."""
        message_services.reveal(message_id=int(object_id), by=operator(request))
        return "Revealed. That you looked is in the record."

    def release(self, request: HttpRequest, object_id: str) -> str:
        """Let a held message through by a person's word; trust and permission stay as they are."""
        released = message_services.release(message_id=int(object_id), by=operator(request))
        if released.execution == Message.Execution.DUE:
            return "Released. It starts its work now."
        return "Released: it can be read. It starts no work."

    def set_aside(self, request: HttpRequest, object_id: str) -> str:
        """Seen, and left as it is: it no longer asks for anybody."""
        message_services.set_aside(message_id=int(object_id), by=operator(request))
        return "Left as it is. It stays held, and no longer asks for you."

    def set_aside_sender(self, request: HttpRequest, object_id: str) -> str:
        """The same for all that is held of this sender here."""
        moved = message_services.set_aside(
            message_id=int(object_id), whole_sender=True, by=operator(request)
        )
        return f"{moved} held messages of this sender stay as they are."

    def pages(self) -> list[URLPattern]:
        """The frame with its HTML, its parts, its raw source."""
        wrap = self.admin_site.admin_view
        return [
            path("<int:pk>/html/", wrap(downloads.html_frame), name="mail_message_html"),
            path("<int:pk>/raw/", wrap(downloads.raw_source), name="mail_message_raw"),
            path("<int:pk>/part/<str:part>/", wrap(downloads.part), name="mail_message_part"),
        ]

    def page(self, request: HttpRequest, row: Message) -> Mapping[str, object]:
        """The whole story of one message."""
        readable = row.pk in selectors.shown([row])
        reading = read(row)
        return {
            "title": row.subject if readable and row.subject else str(row),
            "readable": readable,
            "covered": COVERED,
            "evidence": _evidence(row.trust_evidence),
            "earlier_verdicts": list(row.trust_records.order_by("-id")[1:6]),
            "decisions": _decisions(row),
            "reading": reading,
            "raw_excerpt": reading.raw_excerpt if readable else "",
            "asks": row.verdict == Verdict.HOLD and not (row.revealed_at or row.set_aside_at),
            "can_release": row.verdict == Verdict.HOLD and row.released_at is None,
            **_neighbours(row, reading),
        }


def _neighbours(row: Message, reading: Reading) -> Mapping[str, object]:
    """Rows that belong to the message: thread, replies, recipients, parts, places."""
    siblings = Message.objects.none()
    if row.thread is not None:
        siblings = row.thread.messages.select_related("account").order_by("received_at")[:30]
    return {
        "recipients": list(row.recipients.all()),
        "attachments": [part for part in row.parts.all() if part.is_attachment],
        "thread": list(siblings),
        "replies": list(row.replies.order_by("created_at")),
        "locations": list(row.locations.all()),
    }


def _decisions(row: Message) -> list[Decision]:
    about = Decision.objects.filter(subject_type="mail.message", subject_id=str(row.pk))
    return list(about.order_by("id")[:20])


def _evidence(evidence: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    """What a verdict rests on, as (label, value, whether it is code)."""
    words = ", ".join(evidence.get("status") or ())
    notes = ", ".join(evidence.get("notes") or ())
    rows = [
        ("Signing key", evidence.get("signer") or "none", True),
        ("Signed at", _when(evidence.get("signed_at")), False),
        ("Hash", evidence.get("hash") or "—", False),
        ("GnuPG said", words or "nothing", True),
        ("Provider headers", evidence.get("provider_headers") or "absent", False),
    ]
    return [*rows, ("Notes", notes, False)] if notes else rows


def _when(text: Any) -> str:
    """A stored time for a person, in the operator's zone."""
    at = parse_datetime(text) if isinstance(text, str) else None
    return f"{localtime(at):%d %B %Y, %H:%M:%S %Z}" if at else "—"
