"""Effects in the console: each act that left, or did not, or may have; and later looks at it."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from approvals import selectors
from approvals.admin.fields import fields_of, kind_label, source_of
from approvals.middleware import root_of
from approvals.models import Effect, Observation
from approvals.refusals import in_words, told
from approvals.sentences import look_sentence, phase_sentence, reason_sentence
from approvals.services import effects as effect_services
from approvals.services import recovery
from approvals.types import Purpose
from guards.exceptions import CountersignError
from guards.fronts.console import Act, PageAdmin, operator

PHASE_LABELS = {
    "intent": "info",
    "marked": "info",
    "accepted": "success",
    "verified": "success",
    "failed": "danger",
    "unknown": "danger",
}

#: What a look's result is called on its chip.
RESULT_WORDS = {
    recovery.VERIFIED_SENT: "found among the sent",
    recovery.UNKNOWN_STILL: "proved nothing",
    recovery.BLOCKED: "not made",
    recovery.LOST: "ended without result",
}


@admin.register(Effect)
class EffectAdmin(PageAdmin):
    """Each act that left the house, or did not, or may have."""

    page_template = "approvals/effect.html"
    empty_state = "Whatever leaves the house is one effect. None has left yet."
    empty_icon = "rocket_launch"
    list_display = ("show_kind", "show_phase", "reason", "contact_marked_at", "settled_at")
    list_filter = ("phase", "kind", "project")
    search_fields = ("digest", "subject_id", "source_id", "reason")
    date_hierarchy = "created_at"

    @display(description="What", ordering="kind")
    def show_kind(self, effect: Effect) -> str:
        """The kind of act and the start of its digest."""
        return f"{kind_label(effect.kind)} · {effect.digest[:8]}"

    @display(description="Phase", label=PHASE_LABELS, ordering="phase")
    def show_phase(self, effect: Effect) -> str:
        """The phase's word."""
        return effect.phase

    def acts(self) -> Mapping[str, Act]:
        """An unknown outcome is acknowledged, so that the next act may go, or looked at again."""
        return {"acknowledge": self.acknowledge, "look-again": self.look_again}

    def acknowledge(self, request: HttpRequest, object_id: str) -> str:
        """Take note of an unknown outcome."""
        effect_services.acknowledge_unknown(effect_id=object_id, by=operator(request))
        return "Acknowledged. It stays unknown; another act about the same message may go now."

    def look_again(self, request: HttpRequest, object_id: str) -> str:
        """Grant one look, read-only and finite. The page's own name for it makes it once."""
        with in_words(sentences={}):
            recovery.look_again(
                effect_id=object_id,
                by=operator(request),
                root=root_of(request),
                request_id=request.POST.get("request_id", ""),
            )
        return "Looking, read-only. What is found is added below; the outcome stays unknown."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Effect]:
        """With the approval that allowed it."""
        rows: QuerySet[Effect] = super().get_queryset(request).select_related("approval", "consent")
        return rows

    def _looks(self, request: HttpRequest, row: Effect) -> dict[str, object]:
        """The looks so far, and whether this session may look again now."""
        looks = selectors.looks_at(row)
        shown: dict[str, object] = {
            "looks": _look_rows(looks),
            "found_sent": any(look.job.outcome == recovery.VERIFIED_SENT for look in looks),
            "looking": any(look.job.finished_at is None for look in looks),
        }
        if row.phase != Effect.Phase.UNKNOWN or not self.may_act(request):
            return shown
        refused = recovery.why_not(effect_id=row.pk, by=operator(request), root=root_of(request))
        return {
            **shown,
            "may_look": refused is None,
            "no_look": told(refused, {}) if refused else "",
            "no_look_reason": refused.reason if refused else "",
            "look_contacts": selectors.planned_contacts(row.kind, Purpose.RECOVER),
            "request_id": uuid4(),
        }

    def page(self, request: HttpRequest, row: Effect) -> Mapping[str, object]:
        """What was to leave, how far it came, and what later looks found."""
        try:
            preview, unreadable = dict(selectors.preview(row.approval)), ""
        except CountersignError as refused:
            preview, unreadable = {}, refused.detail
        source_of(preview)
        unknown = row.phase == Effect.Phase.UNKNOWN
        looks = self._looks(request, row)
        return {
            "title": f"Effect: {kind_label(row.kind)}",
            "moving": row.phase in Effect.OUTSTANDING or looks["looking"],
            "acting": row.phase in Effect.OUTSTANDING,
            "unreadable": unreadable,
            "fields": fields_of(preview),
            "body": preview.get("text", ""),
            "sentence": phase_sentence(row.phase),
            "reason_sentence": reason_sentence(row.reason),
            "steps": _steps(row),
            "unknown": unknown,
            "can_acknowledge": unknown and row.acknowledged_at is None and self.may_act(request),
            "contacts": selectors.contact_counts(row.consent),
            "observations": list(row.observations.filter(job=None)),
            **looks,
        }


def _look_rows(looks: list[selectors.Look]) -> list[dict[str, object]]:
    """Each look with its words: result, reason, and whether it still runs."""
    return [
        {
            "look": look,
            "says": look_sentence(look.job.outcome) if look.job.outcome else "",
            "why": look_sentence(look.job.reason) or look.job.reason.replace("_", " "),
            "word": RESULT_WORDS.get(look.job.outcome, "looking"),
            "tone": look.job.outcome or "running",
        }
        for look in looks
    ]


def _steps(effect: Effect) -> list[tuple[str, object, str]]:
    """How far the effect came: word, time, tone."""
    done = effect.phase in Effect.DONE
    settled = effect.settled_at is not None
    tone = "ok" if done else "bad" if settled else "quiet"
    approved = effect.approval.decided_at or effect.created_at
    marked = "info" if effect.contact_marked_at else "quiet"
    return [
        ("approved", approved, "ok"),
        ("intent frozen", effect.created_at, "ok"),
        ("marked before the contact", effect.contact_marked_at, marked),
        (effect.phase if settled else "outcome", effect.settled_at, tone),
    ]


@admin.register(Observation)
class ObservationAdmin(PageAdmin):
    """Later looks at an effect. They change nothing."""

    page_template = "approvals/observation.html"
    empty_state = "Nobody has looked again at an effect."
    empty_icon = "visibility"
    list_display = ("effect", "outcome", "observer", "at")
    list_filter = ("outcome",)
    search_fields = ("observer", "outcome")
    date_hierarchy = "at"
    list_select_related = ("effect",)

    def page(self, request: HttpRequest, row: Observation) -> Mapping[str, object]:
        """What it says, in words."""
        return {"says": look_sentence(row.outcome)}
