"""What the console's templates say often: ages, chips, links to subjects, sentences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any

from django import template
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from approvals.sentences import hold_reason_sentence
from guards import selectors as guards_selectors
from guards.models import ApiToken, Identity
from guards.unseen import is_unseen, visible
from mail import sentences
from teams.models import Event
from teams.sentences import sentence

register = template.Library()

#: One tone per word, wherever it is shown.
TONES: Mapping[str, str] = {
    "trusted": "trusted",
    **dict.fromkeys(
        ("verified", "ok", "allow", "completed", "succeeded", "accepted", "consumed"), "ok"
    ),
    **dict.fromkeys(("sent", "approved", "closed", "pass"), "ok"),
    **dict.fromkeys(
        ("unverified", "hold", "held", "waiting", "waiting_approval", "pending"), "warn"
    ),
    **dict.fromkeys(("changes_requested", "incomplete", "missing", "new"), "warn"),
    **dict.fromkeys(("escalated", "escalate"), "warn"),
    "verified_sent_observation": "ok",
    **dict.fromkeys(("unknown_observation", "blocked"), "warn"),
    **dict.fromkeys(("lost", "needs_reconnect"), "bad"),
    "fail": "bad",
    **dict.fromkeys(("untrusted", "deny", "failed", "interrupted", "unknown", "rejected"), "bad"),
    **dict.fromkeys(("failing", "invalid", "wrong-key", "expired-key", "quarantined"), "bad"),
    **dict.fromkeys(
        ("running", "claimed", "sending", "marked", "queued", "planned", "intent"), "info"
    ),
}

#: One symbol per trust level beside its word.
LEVEL_ICONS: Mapping[str, str] = {
    "trusted": "verified_user",
    "verified": "verified",
    "unverified": "help",
    "untrusted": "gpp_bad",
}


@register.simple_tag(takes_context=True)
def asker(context: template.Context, who: str, nobody: str = "") -> str:
    """Who asked or answered; of a person's token the name too, for whom may see tokens."""
    from guards.fronts.console import may_view  # which itself loads these tags

    request = context.get("request")
    if request is None or not (may_view(request, ApiToken) and may_view(request, Identity)):
        return who or nobody
    name = guards_selectors.person_of(who)
    return f"{name} ({who})" if name else who or nobody


@register.filter
def tone(word: object) -> str:
    """The tone of a state's word: ok, warn, bad, info or quiet."""
    return TONES.get(str(word), "quiet")


@register.simple_tag
def chip(word: object, text: str = "", icon: str = "") -> SafeString:
    """A state's word as a coloured chip; the word itself is always written out."""
    shown = text or str(word).replace("_", " ")
    symbol = icon or LEVEL_ICONS.get(str(word), "")
    image = (
        format_html('<span class="material-symbols-outlined" aria-hidden="true">{}</span>', symbol)
        if symbol
        else ""
    )
    return format_html('<span class="cs-chip cs-{}">{}{}</span>', tone(word), image, shown)


@register.simple_tag
def moment(at: datetime | None, empty: str = "never") -> SafeString:
    """A time as its age, with the exact time in the operator's zone on hover and for machines."""
    if at is None:
        return format_html('<span class="cs-muted">{}</span>', empty)
    local = timezone.localtime(at)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(),
        f"{local:%A, %d %B %Y, %H:%M:%S %Z}",
        age(at),
    )


@register.filter
def age(at: datetime | None) -> str:
    """`4 s ago`, `12 min ago`, `3 h ago`, `5 days ago`; `in …` for what is to come."""
    if at is None:
        return "never"
    seconds = int((timezone.now() - at).total_seconds())
    words = span(abs(seconds))
    return f"{words} ago" if seconds >= 0 else f"in {words}"


@register.filter
def span(seconds: float | None) -> str:
    """A duration in one unit that a person would choose."""
    if seconds is None:
        return "—"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 and seconds % 1 else f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"


@register.filter
def usd(amount: Decimal | float | None) -> str:
    """US dollars, exact to the cent, and finer where a cent would hide them."""
    if amount is None:
        return "—"
    return f"{amount:.2f}" if amount >= 0.01 or not amount else f"{amount:.4f}"


#: Origins of outgoing mail that are no tables, and whose rows their ids begin with.
_WRITERS = {
    "pipelines.send": "pipelines.stage",
    "pipelines.resumption": "pipelines.pipeline",
    "pipelines.acknowledgement": "pipelines.pipeline",
}


@register.simple_tag
def subject_url(subject_type: str, subject_id: str) -> str:
    """The page of a subject reference, or nothing where it has none."""
    if subject_type in _WRITERS:
        subject_type, subject_id = _WRITERS[subject_type], subject_id.partition(".")[0]
    try:
        app, model = subject_type.split(".")
        return reverse(f"admin:{app}_{model}_change", args=[subject_id])
    except (ValueError, NoReverseMatch):
        return ""


@register.simple_tag
def subject_link(subject_type: str, subject_id: str) -> SafeString:
    """A subject reference as a link with its short name."""
    word = subject_type.split(".")[-1]
    text = f"{word} {subject_id[:8] if len(subject_id) > 12 else subject_id}"
    url = subject_url(subject_type, subject_id)
    if not url:
        return format_html("<span>{}</span>", text)
    return format_html('<a class="cs-link" href="{}">{}</a>', url, text)


@register.filter
def trust_sentence(reason: str) -> str:
    """Why a message has its level."""
    return sentences.trust_sentence(reason)


@register.filter
def rule_sentence(rule: str) -> str:
    """What a rule means for a message."""
    return sentences.rule_sentence(rule)


@register.filter
def loop_sentence(reason: str) -> str:
    """Why a message gets no automatic answer."""
    return sentences.loop_sentence(reason)


@register.filter
def pretty_json(value: Any) -> str:
    """JSON for a person."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True, default=str)


@register.filter
def readable_date(text: object) -> str:
    """A stored ISO time in the operator's zone; any other text as it is."""
    at = parse_datetime(text) if isinstance(text, str) else None
    return f"{timezone.localtime(at):%a, %d %b %Y %H:%M:%S %z}" if at else str(text)


@register.filter
def seen(text: object) -> SafeString:
    """Text of others, line by line, with each character that nobody would see written out."""
    runs = groupby(str(text), key=lambda one: one not in "\n\t" and is_unseen(one))
    return format_html_join("", "{}", ((_seen(hidden, "".join(run)),) for hidden, run in runs))


def _seen(hidden: bool, run: str) -> str:
    return format_html('<mark class="cs-unseen">{}</mark>', visible(run)) if hidden else run


@register.filter
def fingerprint(value: str | None) -> str:
    """40 hex digits in groups of four; anything else as it is."""
    text = value or ""
    if len(text) != 40:
        return text
    return " ".join(text[at : at + 4] for at in range(0, 40, 4))


#: The last word of an event's kind, and its tone; feed.js has the same list.
_EVENT_TONES: Mapping[str, str] = {
    **dict.fromkeys(("unknown", "failed", "failing", "interrupted", "refused", "rejected"), "bad"),
    **dict.fromkeys(("quarantined", "revoked"), "bad"),
    **dict.fromkeys(("held", "pending", "opened", "expired", "superseded"), "warn"),
    **dict.fromkeys(("waiting_approval", "changes_requested"), "warn"),
    **dict.fromkeys(("accepted", "verified", "completed", "succeeded", "approved"), "ok"),
    **dict.fromkeys(("consumed", "recovered", "loaded", "pinned"), "ok"),
}


@register.filter
def event_tone(kind: str) -> str:
    """The tone of an event's kind."""
    return _EVENT_TONES.get(kind.rsplit(".", 1)[-1], "info")


@register.filter
def short_actor(actor: str) -> str:
    """Who did it, a long id cut: `pipeline ab9f5a01`, `operator:olga`; feed.js does the same."""
    kind, _, name = actor.partition(":")
    if "." not in kind:
        return actor
    return f"{kind.rpartition('.')[2]} {name[:8]}"


@register.filter
def hold_sentence(reason: str) -> str:
    """Why a draft waits."""
    return hold_reason_sentence(reason)


@register.filter
def event_sentence(event: Event) -> str:
    """What an event says to a person."""
    return sentence(event)
