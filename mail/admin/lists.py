"""Threads, what is written to leave, places on servers: lists and small pages."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from guards.fronts.console import PageAdmin
from mail.admin.messages import COVERED, is_readable
from mail.models import FolderCursor, Location, Outbound, Thread

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
        return rows.annotate(size=Count("messages")).prefetch_related("messages")

    @display(description="Subject")
    def show_subject(self, thread: Thread) -> str:
        """Covered until one of its messages may be read."""
        readable = any(is_readable(message) for message in thread.messages.all())
        return (thread.subject or "(no subject)") if readable else COVERED

    @display(description="Messages", ordering="size")
    def show_size(self, thread: Thread) -> int:
        """How many arrived."""
        return int(getattr(thread, "size", 0))

    def page(self, request: HttpRequest, row: Thread) -> Mapping[str, object]:
        """What was written in it, in order, ours and theirs."""
        arrived = row.messages.select_related("account").order_by("received_at")[:200]
        return {
            "title": self.show_subject(row),
            "arrived": [(message, is_readable(message)) for message in arrived],
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

    def page(self, request: HttpRequest, row: Outbound) -> Mapping[str, object]:
        """What it says and what it answers."""
        source = row.in_reply_to
        return {
            "title": f"To {self.show_to(row)}",
            "source": source,
            "source_readable": source is not None and is_readable(source),
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
