"""Projects and the record in the console: events, checkpoints, and whether the chain holds."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib import admin, messages
from django.http import HttpRequest
from django.urls import reverse
from unfold.decorators import display

from guards.fronts.console import Act, PageAdmin
from teams.models import Checkpoint, Event, Project
from teams.sentences import sentence
from teams.services import verification


@admin.register(Event)
class EventAdmin(PageAdmin):
    """Everything that happened, newest first. A change to any of it would show."""

    page_template = "teams/event.html"
    empty_state = "The first act of anybody stands here, chained to all that follow."
    empty_icon = "receipt_long"
    list_display = ("seq", "kind", "show_subject", "actor", "project", "at")
    list_display_links = ("seq", "kind")
    list_filter = ("project", "kind")
    search_fields = ("kind", "subject_id", "actor")
    search_help_text = "Kind, subject's id, actor"
    date_hierarchy = "at"
    ordering = ("-seq",)
    list_before_template = "teams/verify.html"

    @display(description="About")
    def show_subject(self, event: Event) -> str:
        """The subject's type and the start of its id."""
        return f"{event.subject_type.split('.')[-1]} {event.subject_id[:8]}"

    def page(self, request: HttpRequest, row: Event) -> Mapping[str, object]:
        """The event with its place in the chain, and the others about the same thing."""
        about = Event.objects.filter(subject_type=row.subject_type, subject_id=row.subject_id)
        return {
            "title": f"#{row.seq} {row.kind}",
            "meaning": sentence(row),
            "others": list(about.order_by("-seq")[:20]),
        }


@admin.register(Checkpoint)
class CheckpointAdmin(PageAdmin):
    """Heads of the record that this installation signed."""

    page_template = "console/plain.html"
    empty_state = "The worker signs the head of the record as it grows."
    empty_icon = "verified"
    list_display = ("seq", "show_hash", "key_id", "signed_at")
    date_hierarchy = "signed_at"
    ordering = ("-seq",)
    acts_on_all = frozenset({"verify"})

    @display(description="Hash")
    def show_hash(self, checkpoint: Checkpoint) -> str:
        """The start of the hash."""
        return f"{checkpoint.hash[:16]}…"

    def acts(self) -> Mapping[str, Act]:
        """Walk the whole chain again. It reads only, but it takes a while, so it is asked for."""
        return {"verify": self.verify}

    def verify(self, request: HttpRequest, object_id: str) -> str | None:
        """Say whether anything was changed, reordered, removed or cut."""
        report = verification.verify()
        if report.ok:
            return f"The record holds: {report.events} events up to #{report.head.seq}."
        messages.error(
            request, f"The record does not hold from #{report.first_bad}: {report.reason}"
        )
        return None

    def act_target(self, request: HttpRequest, object_id: str, act: str) -> str:
        """Back to the record."""
        return reverse("admin:teams_event_changelist")

    def page(self, request: HttpRequest, row: Checkpoint) -> Mapping[str, object]:
        """The signed head in full."""
        return {
            "facts": [
                ("Up to event", row.seq),
                ("Hash", row.hash),
                ("Key", row.key_id),
                ("Signature", row.signature),
                ("Signed at", row.signed_at),
            ]
        }


@admin.register(Project)
class ProjectAdmin(PageAdmin):
    """Bodies of work."""

    page_template = "console/plain.html"
    empty_state = "Projects group events and agents. They come with `teams`."
    empty_icon = "folder_managed"
    list_display = ("slug", "name", "root", "git_remote", "created_at")
    search_fields = ("slug", "name")

    def page(self, request: HttpRequest, row: Project) -> Mapping[str, object]:
        """The project in full."""
        return {
            "facts": [
                ("Slug", row.slug),
                ("Name", row.name),
                ("Root", row.root),
                ("Git remote", row.git_remote),
                ("Since", row.created_at),
            ]
        }
