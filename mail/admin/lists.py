"""Threads, what is written to leave, places on servers: lists and small pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Count, Prefetch, QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path
from unfold.decorators import display

from guards.fronts.console import PageAdmin
from mail import selectors
from mail.admin import downloads
from mail.admin.messages import mark_shown, subject_of
from mail.listing import REDACTED as COVERED
from mail.models import FolderCursor, Location, Message, Outbound, Thread

STATUS_LABELS = {
    "draft": "default",
    "held": "warning",
    "sending": "info",
    "accepted": "success",
    "verified": "success",
    "unknown": "danger",
    "failed": "danger",
    "rejected": "danger",
    "cancelled": "default",
}


@admin.register(Thread)
class ThreadAdmin(PageAdmin):
    """Messages that answer each other."""

    page_template = "mail/thread.html"
    empty_state = "Threads appear with the mail that makes them."
    empty_icon = "forum"
    list_display = ("show_subject", "account", "show_size", "last_at")
    list_filter = ("account",)
    search_fields = ("root_id",)
    date_hierarchy = "last_at"
    list_select_related = ("account",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Thread]:
        """With the number of messages, and whether any of them may be read."""
        rows: QuerySet[Thread] = super().get_queryset(request)
        messages = Message.objects.select_related("account").defer("text").order_by("received_at")
        return rows.annotate(size=Count("messages")).prefetch_related(
            Prefetch("messages", messages)
        )

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The list, with a note at each message whether it may be read."""
        changelist = super().get_changelist_instance(request)
        mark_shown(message for row in changelist.result_list for message in row.messages.all())
        return changelist

    @display(description="Subject")
    def show_subject(self, thread: Thread) -> str:
        """That of its first message that may be read; covered while there is none."""
        subjects = (subject_of(message) for message in thread.messages.all())
        return next((subject for subject in subjects if subject != COVERED), COVERED)

    @display(description="Messages", ordering="size")
    def show_size(self, thread: Thread) -> int:
        """How many arrived."""
        return int(getattr(thread, "size", 0))

    def page(self, request: HttpRequest, row: Thread) -> Mapping[str, object]:
        """What was written in it, in order, ours and theirs."""
        mark_shown(row.messages.all())
        arrived = row.messages.all()[:200]
        return {
            "title": self.show_subject(row),
            "arrived": [(message, subject_of(message)) for message in arrived],
            "written": list(row.outbound.order_by("created_at")[:200]),
            "covered": COVERED,
        }


@admin.register(Outbound)
class OutboundAdmin(PageAdmin):
    """What was written to leave, and how far it came."""

    page_template = "mail/outbound.html"
    empty_state = "Replies of pipelines and of people will stand here, with what became of them."
    empty_icon = "outgoing_mail"
    list_display = ("show_to", "subject", "show_status", "account", "automatic", "created_at")
    list_filter = ("status", "automatic", "executes", "account")
    search_fields = ("subject", "message_id", "to")
    date_hierarchy = "created_at"
    list_select_related = ("account",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Outbound]:
        """With all that its page names."""
        rows: QuerySet[Outbound] = super().get_queryset(request)
        return rows.select_related("account__identity", "hold", "effect", "in_reply_to__account")

    @display(description="To")
    def show_to(self, outbound: Outbound) -> str:
        """Its recipients."""
        return ", ".join(outbound.to)

    @display(description="Status", ordering="status", label=STATUS_LABELS)
    def show_status(self, outbound: Outbound) -> str:
        """The status's word."""
        return outbound.status

    def pages(self) -> list[URLPattern]:
        """The files that go with it."""
        served = self.admin_site.admin_view(downloads.outbound_file)
        return [path("<uuid:pk>/file/<int:position>/", served, name="mail_outbound_file")]

    def page(self, request: HttpRequest, row: Outbound) -> Mapping[str, object]:
        """What it says, what goes with it, and what it answers."""
        source = row.in_reply_to
        return {
            "title": f"To {self.show_to(row)}",
            "files": row.files.all(),
            "source": source,
            "source_readable": source is not None and source.pk in selectors.shown([source]),
            "covered": COVERED,
        }


@admin.register(Location)
class LocationAdmin(PageAdmin):
    """Where messages lie on their servers."""

    page_template = "console/plain.html"
    empty_icon = "pin_drop"
    list_display = ("message", "account", "folder", "uidvalidity", "uid")
    list_filter = ("account", "folder")
    search_fields = ("=uid",)
    list_select_related = ("message__account", "account")

    def page(self, request: HttpRequest, row: Location) -> Mapping[str, object]:
        """The place in full."""
        return {
            "facts": [
                ("Message", str(row.message)),
                ("Folder", row.folder),
                ("UIDVALIDITY", row.uidvalidity),
                ("UID", row.uid),
            ]
        }


@admin.register(FolderCursor)
class FolderCursorAdmin(PageAdmin):
    """How far each folder was read."""

    page_template = "console/plain.html"
    empty_icon = "bookmark"
    empty_state = "A folder gets its cursor with its first pass."
    list_display = ("account", "folder", "uidvalidity", "last_uid", "first_pass_done", "updated_at")
    list_filter = ("account", "first_pass_done")
    list_select_related = ("account",)

    def page(self, request: HttpRequest, row: FolderCursor) -> Mapping[str, object]:
        """The cursor in full."""
        return {
            "facts": [
                ("Account", row.account.name),
                ("Folder", row.folder),
                ("UIDVALIDITY", row.uidvalidity),
                ("Last UID", row.last_uid),
                ("First pass", "done" if row.first_pass_done else "still running"),
            ]
        }
