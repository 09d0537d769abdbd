"""The console's look and its map: django-unfold's settings and the sidebar in the house's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the sidebar: a model's list, its word here, its symbol, and what is counted.

    `page` names another page of that model instead of its list.
    """

    model: str
    title: str
    icon: str
    counted: str = ""
    page: str = ""


#: What an operator looks for, in the order in which he looks for it.
GROUPS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Mail",
        (
            Entry("mail.message", "Messages", "inbox"),
            Entry("mail.thread", "Threads", "forum"),
            Entry("mail.outbound", "Outgoing", "outgoing_mail"),
            Entry("mail.account", "Accounts", "alternate_email", "failing-account"),
        ),
    ),
    (
        "Sign-off",
        (
            Entry("approvals.hold", "Held drafts", "front_hand", "held-reply"),
            Entry("approvals.approval", "Approvals", "approval_delegation"),
            Entry("approvals.effect", "Effects", "rocket_launch", "unknown-effect"),
            Entry("approvals.connection", "Connections", "link", "lost-connection"),
        ),
    ),
    (
        "Work",
        (
            Entry("pipelines.pipeline", "Pipelines", "account_tree", "interrupted-pipeline"),
            Entry("pipelines.mission", "Missions", "assignment", "stuck-mission"),
            Entry("pipelines.mission", "Costs", "payments", page="pipelines_mission_costs"),
            Entry("pipelines.command", "Commands", "terminal", "unsigned-command"),
            Entry("pipelines.rule", "Rules", "rule"),
        ),
    ),
    (
        "Who may",
        (
            Entry("guards.identity", "Identities", "badge"),
            Entry("guards.contact", "Contacts", "contacts"),
            Entry("guards.permission", "Permissions", "lock_person"),
            Entry("guards.pinnedkey", "Pinned keys", "key", "expiring-key"),
            Entry("guards.candidatekey", "Candidate keys", "key_visualizer"),
            Entry("guards.apitoken", "API tokens", "token"),
        ),
    ),
    (
        "Record",
        (
            Entry("guards.decision", "Decisions", "gavel"),
            Entry("teams.event", "Events", "receipt_long"),
            Entry("teams.checkpoint", "Checkpoints", "verified"),
            Entry("teams.project", "Projects", "folder_managed"),
        ),
    ),
    (
        "House",
        (
            Entry("auth.user", "Operators", "person"),
            Entry("approvals.root", "Sessions", "passkey"),
            Entry("approvals.goal", "Goals", "flag"),
            Entry("approvals.consent", "Grants", "confirmation_number"),
            Entry("approvals.job", "Jobs", "memory"),
            Entry("guards.heartbeat", "Processes", "monitor_heart"),
        ),
    ),
)


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar: only what is registered and what this person may see."""
    from django.contrib import admin

    from config import needs

    counts = needs.counts(request)
    overview = {
        "title": "Needs you",
        "icon": "notifications_active",
        "link": reverse("admin:index"),
    }
    shown = {
        model._meta.label_lower
        for model, model_admin in admin.site._registry.items()
        if model_admin.has_view_permission(request)
    }
    groups = [
        {"title": title, "items": [_item(e, counts) for e in entries if e.model in shown]}
        for title, entries in GROUPS
    ]
    first = {"title": "", "items": [overview | _badge(sum(counts.values()))]}
    return [first, *(group for group in groups if group["items"])]


def _item(entry: Entry, counts: Mapping[str, int]) -> dict[str, Any]:
    app, model = entry.model.split(".")
    link = reverse(f"admin:{entry.page or f'{app}_{model}_changelist'}")
    item = {"title": entry.title, "icon": entry.icon, "link": link, "active": _is_at(entry, link)}
    return item | _badge(counts.get(entry.counted, 0))


def _is_at(entry: Entry, link: str) -> Callable[[HttpRequest], bool]:
    """Whether a request is on this line's pages, and on none that another line names."""
    others = [
        reverse(f"admin:{other.page}")
        for _, entries in GROUPS
        for other in entries
        if other.page and other is not entry
    ]

    def look(request: HttpRequest) -> bool:
        path = request.path
        return path.startswith(link) and not any(path.startswith(other) for other in others)

    return look


def _badge(number: int) -> dict[str, Any]:
    return {"badge": str(number), "badge_variant": "danger"} if number else {}


def environment(request: HttpRequest) -> list[str] | None:
    """The label in the header: shown only where the installation is not the real one."""
    from django.conf import settings

    if settings.DEBUG:
        return ["Debug", "danger"]
    if settings.ENVIRONMENT_LABEL:
        return [settings.ENVIRONMENT_LABEL, "info"]
    return None


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Countersign",
    "SITE_HEADER": "Countersign",
    "SITE_SUBHEADER": "mail in, signed work, mail out",
    "SITE_SYMBOL": "approval_delegation",
    "SITE_URL": None,
    "SITE_FAVICONS": [
        {
            "rel": "icon",
            "type": "image/svg+xml",
            "href": lambda request: static("countersign/seal.svg"),
        }
    ],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "ENVIRONMENT": "config.console.environment",
    "DASHBOARD_CALLBACK": "config.dashboard.dashboard",
    "STYLES": [lambda request: static("countersign/console.css")],
    "SCRIPTS": [],
    "BORDER_RADIUS": "8px",
    "COLORS": {
        "primary": {
            "50": "oklch(98.2% .016 184)",
            "100": "oklch(95.1% .042 184)",
            "200": "oklch(90.4% .074 184)",
            "300": "oklch(83.6% .105 184)",
            "400": "oklch(74.8% .118 184)",
            "500": "oklch(64.5% .110 186)",
            "600": "oklch(50.5% .092 188)",
            "700": "oklch(44.2% .080 190)",
            "800": "oklch(38.5% .068 192)",
            "900": "oklch(33.0% .056 194)",
            "950": "oklch(24.5% .044 196)",
        },
    },
    "SIDEBAR": {
        "show_search": False,
        "command_search": True,
        "navigation": "config.console.navigation",
    },
    "COMMAND": {"search_models": False},
}
