"""Authority in the console: sessions, goals, grants, connections, jobs. Read, and taken away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.timezone import now
from unfold.decorators import display

from approvals import selectors
from approvals.admin.fields import reason_given
from approvals.middleware import root_of
from approvals.models import Connection, Consent, Goal, Job, Root
from approvals.refusals import in_words
from approvals.sentences import look_sentence, reason_sentence
from approvals.services import connections as connection_services
from approvals.services import consents as consent_services
from approvals.services import roots as root_services
from guards.fronts.console import Act, PageAdmin, operator
from guards.types import Subject

STATE_LABELS = {
    "live": "success",
    "open": "success",
    "verified": "success",
    "done": "success",
    "new": "warning",
    "running": "info",
    "waiting": "info",
    "needs reconnecting": "danger",
    "revoked": "danger",
    "lost": "danger",
}
_USUAL_ROWS = 50


@dataclass(frozen=True, slots=True)
class Link:
    """A related row: what it is called, where it is, and what to say of it."""

    subject: Subject
    said: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """The act that ends a row's authority: its word in the address, button, and consequence."""

    word: str
    label: str
    consequence: str


class AuthorityAdmin(PageAdmin):
    """A row of authority: its facts, what rests on it, and the act that takes it away."""

    page_template = "approvals/authority.html"

    @display(description="State", label=STATE_LABELS)
    def show_state(self, row: Any) -> str:
        """The state's word."""
        return self.state_of(row)

    def state_of(self, row: Any) -> str:
        """One word for whether it still carries anything."""
        raise NotImplementedError

    def facts_of(self, row: Any) -> Iterable[tuple[str, object]]:
        """What the page says of it; moments are shown as such."""
        raise NotImplementedError

    def links_of(self, row: Any) -> Iterable[Link]:
        """What rests on it, newest first."""
        return ()

    def ending_of(self, row: Any) -> Ending | None:
        """How it is taken away, while it may be."""
        return None

    def page(self, request: HttpRequest, row: Model) -> Mapping[str, object]:
        """Facts, related rows, and the button where this person may press it."""
        ending = self.ending_of(row) if self.may_act(request) else None
        return {
            "title": f"{str(self.opts.verbose_name).capitalize()} {str(row.pk)[:8]}",
            "state": self.state_of(row),
            "facts": [fact for fact in self.facts_of(row) if fact[1] not in (None, "")],
            "links": list(self.links_of(row))[:_USUAL_ROWS],
            "ending": ending,
            "ending_url": self._act_url(row, ending.word) if ending else "",
        }

    def _act_url(self, row: Model, word: str) -> str:
        return reverse(self._name(word), args=[row.pk])


@admin.register(Root)
class RootAdmin(AuthorityAdmin):
    """Operators' sessions: who is logged in, and until when."""

    empty_state = "Every login of an operator is a session. Nobody has logged in yet."
    empty_icon = "passkey"
    list_display = ("principal", "show_state", "created_at", "idle_until", "expires_at")
    list_filter = ("principal",)
    search_fields = ("principal",)
    date_hierarchy = "created_at"
    list_select_related = ("user",)

    def state_of(self, row: Root) -> str:
        """Live, over, or revoked."""
        if row.revoked_at is not None:
            return "revoked"
        return "over" if row.is_over(now()) else "live"

    def facts_of(self, row: Root) -> Iterable[tuple[str, object]]:
        """Whose it is and when it ends."""
        return (
            ("Operator", row.principal),
            ("Logged in", row.created_at),
            ("Ends at the latest", row.expires_at),
            ("Ends if unused", row.idle_until),
            ("Ended", row.ended_at),
            ("Revoked", row.revoked_at),
            ("Revoked by", row.revoked_by),
            ("Why", row.revoked_reason),
        )

    def links_of(self, row: Root) -> Iterable[Link]:
        """What was set out to do in it."""
        return (
            Link(Subject("approvals.goal", str(goal.pk)), goal.get_kind_display())
            for goal in row.goals.all()[:_USUAL_ROWS]
        )

    def ending_of(self, row: Root) -> Ending | None:
        """A revocation is for good, also of a session that is over: no look again under it."""
        if row.revoked_at is not None:
            return None
        consequence = (
            "Its operator is logged out, and nothing that was granted in it contacts anybody."
        )
        return Ending("revoke", "Revoke this session", consequence)

    def acts(self) -> Mapping[str, Act]:
        """Revoke."""
        return {"revoke": self.revoke}

    def revoke(self, request: HttpRequest, object_id: str) -> str:
        """Take the session's authority away for good."""
        root_services.revoke(root_id=object_id, by=operator(request), reason=reason_given(request))
        return "Revoked. Nothing more is contacted under it."


@admin.register(Goal)
class GoalAdmin(AuthorityAdmin):
    """What operators set out to do."""

    empty_state = "Opening a draft for review, looking again and connecting are goals."
    empty_icon = "flag"
    list_display = ("kind", "show_state", "principal", "about_type", "created_at")
    list_filter = ("kind",)
    search_fields = ("principal", "about_id")
    date_hierarchy = "created_at"

    def state_of(self, row: Goal) -> str:
        """Open, closed, or deleted."""
        if row.deleted_at is not None:
            return "deleted"
        return "closed" if row.closed_at is not None else "open"

    def facts_of(self, row: Goal) -> Iterable[tuple[str, object]]:
        """Whose, what for, and its revision."""
        return (
            ("To", row.get_kind_display()),
            ("Operator", row.principal),
            ("Revision", row.revision),
            ("Begun", row.created_at),
            ("Closed", row.closed_at),
            ("Deleted", row.deleted_at),
        )

    def links_of(self, row: Goal) -> Iterable[Link]:
        """What it is about, its session, and its grants."""
        yield Link(Subject(row.about_type, row.about_id), "what it is about")
        yield Link(Subject("approvals.root", str(row.root_id)), "its session")
        for consent in row.consents.all()[:_USUAL_ROWS]:
            yield Link(Subject("approvals.consent", str(consent.pk)), f"to {consent.purpose}")


@admin.register(Consent)
class ConsentAdmin(AuthorityAdmin):
    """Finite grants: how many contacts of each kind, for one purpose, until when."""

    empty_state = "A kind that contacts a provider gets a finite grant each time. None was needed."
    empty_icon = "confirmation_number"
    list_display = ("purpose", "show_state", "show_contacts", "created_at", "expires_at")
    list_filter = ("purpose",)
    date_hierarchy = "created_at"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Consent]:
        """With the budgets: the list counts them."""
        rows: QuerySet[Consent] = super().get_queryset(request).prefetch_related("budgets")
        return rows

    @display(description="Contacts")
    def show_contacts(self, consent: Consent) -> str:
        """Made of allowed, all kinds together."""
        counts = selectors.contact_counts(consent)
        return f"{sum(one.spent for one in counts)} of {sum(one.cap for one in counts)}"

    def state_of(self, row: Consent) -> str:
        """Live, over, or revoked."""
        if row.revoked_at is not None:
            return "revoked"
        return "over" if row.expires_at <= now() else "live"

    def facts_of(self, row: Consent) -> Iterable[tuple[str, object]]:
        """What it allows."""
        return (
            ("To", row.purpose),
            ("Granted", row.created_at),
            ("Until", row.expires_at),
            ("Under revision", row.goal_revision),
            ("SHA-256 of it all", row.digest),
            ("Revoked", row.revoked_at),
            ("Revoked by", row.revoked_by),
            ("Why", row.revoked_reason),
        )

    def links_of(self, row: Consent) -> Iterable[Link]:
        """Session, goal, job and connections."""
        yield Link(Subject("approvals.root", str(row.root_id)), "its session")
        yield Link(Subject("approvals.goal", str(row.goal_id)), "its goal")
        for job in Job.objects.filter(consent=row):
            yield Link(Subject("approvals.job", str(job.pk)), "its job")
        for bound in row.connections:
            subject = Subject("approvals.connection", str(bound["id"]))
            yield Link(subject, f"at revision {bound['revision']}")

    def page(self, request: HttpRequest, row: Model) -> Mapping[str, object]:
        """The contacts, made of allowed, beside the usual."""
        counted = Consent.objects.prefetch_related("budgets").get(pk=row.pk)
        return {**super().page(request, row), "counts": selectors.contact_counts(counted)}

    def ending_of(self, row: Consent) -> Ending | None:
        """While it could still be spent."""
        if self.state_of(row) != "live":
            return None
        consequence = "The next contact is not made. What was contacted stays counted."
        return Ending("revoke", "Revoke this grant", consequence)

    def acts(self) -> Mapping[str, Act]:
        """Revoke."""
        return {"revoke": self.revoke}

    def revoke(self, request: HttpRequest, object_id: str) -> str:
        """Take it back."""
        consent_services.revoke(
            consent_id=object_id, by=operator(request), reason=reason_given(request)
        )
        return "Revoked. No further contact is made under it."


@admin.register(Connection)
class ConnectionAdmin(AuthorityAdmin):
    """Credentials of accounts, by reference: whose they are, and what they may do."""

    empty_state = "Connect an account on its own page: by secret references only."
    empty_icon = "link"
    list_display = ("show_account", "use", "show_state", "address", "revision", "verified_at")
    list_filter = ("use", "state")
    search_fields = ("address", "account_id")

    @display(description="Account", ordering="account_id")
    def show_account(self, connection: Connection) -> str:
        """Which account, by type and id."""
        return str(Subject(connection.account_type, connection.account_id))

    def state_of(self, row: Connection) -> str:
        """The state's word."""
        return row.get_state_display().lower()

    def facts_of(self, row: Connection) -> Iterable[tuple[str, object]]:
        """Everything but the secrets, of which the house has references only."""
        return (
            ("Use", row.get_use_display()),
            ("Mailbox, as verified", row.address),
            ("Provider's identifier", row.subject),
            ("Scopes asked for", ", ".join(row.declared)),
            ("Scopes observed", ", ".join(row.observed)),
            ("Revision", row.revision),
            ("Client id", row.client_id),
            ("Connected", row.created_at),
            ("Connected by", row.created_by),
            ("Verified", row.verified_at),
            ("What is wrong", reason_sentence(row.reason) or row.reason),
            ("Revoked", row.revoked_at),
            ("Revoked by", row.revoked_by),
            ("Why", row.revoked_reason),
        )

    def links_of(self, row: Connection) -> Iterable[Link]:
        """Its account."""
        yield Link(Subject(row.account_type, row.account_id), "its account")

    def ending_of(self, row: Connection) -> Ending | None:
        """For good; another one is imported."""
        if row.state == Connection.State.REVOKED:
            return None
        consequence = "Reviews that rest on it are void, and nothing is asked through it again."
        return Ending("revoke", "Revoke this connection", consequence)

    def page(self, request: HttpRequest, row: Model) -> Mapping[str, object]:
        """With the button that asks the provider."""
        assert isinstance(row, Connection)  # noqa: S101  (the admin of this model)
        may_verify = self.may_act(request) and row.state != Connection.State.REVOKED
        url = self._act_url(row, "verify") if may_verify else ""
        return {**super().page(request, row), "verify_url": url}

    def acts(self) -> Mapping[str, Act]:
        """Ask the provider, and revoke."""
        return {"verify": self.verify, "revoke": self.revoke}

    def verify(self, request: HttpRequest, object_id: str) -> str:
        """Whatever belongs together is verified together, in at most five contacts."""
        row = Connection.objects.get(pk=object_id)
        groups = connection_services.GROUPS.items()
        group = next(name for name, uses in groups if row.use in uses)
        account = Subject(row.account_type, row.account_id)
        with in_words():
            connection_services.verify(
                account=account, group=group, by=operator(request), root=root_of(request)
            )
        return "Verified."

    def revoke(self, request: HttpRequest, object_id: str) -> str:
        """Out of use for good."""
        connection_services.revoke(
            connection_id=object_id, by=operator(request), reason=reason_given(request)
        )
        return "Revoked: nothing is asked through it any more."


@admin.register(Job)
class JobAdmin(AuthorityAdmin):
    """One attempt of one process each: never taken over, never tried again."""

    empty_state = "Each act and each look is one job of one process. None has run yet."
    empty_icon = "memory"
    list_display = ("kind", "show_state", "outcome", "reason", "claimed_at", "finished_at")
    list_filter = ("kind", "outcome")
    search_fields = ("holder", "reason")
    date_hierarchy = "created_at"

    def state_of(self, row: Job) -> str:
        """Waiting, running, or its outcome."""
        if row.finished_at is not None:
            return row.outcome.replace("_", " ")
        return "running" if row.attempts else "waiting"

    def facts_of(self, row: Job) -> Iterable[tuple[str, object]]:
        """Who held it, how long it had, and what came of it."""
        return (
            ("To", row.get_kind_display()),
            ("Held by", row.holder),
            ("Begun", row.claimed_at),
            ("Had to end by", row.deadline),
            ("Its transport was closed", row.quiesced_at),
            ("Ended", row.finished_at),
            ("How", row.outcome.replace("_", " ")),
            ("Why", reason_sentence(row.reason) or look_sentence(row.reason) or row.reason),
        )

    def links_of(self, row: Job) -> Iterable[Link]:
        """Its grant, and the act that it made or looked at."""
        if row.consent_id is not None:
            yield Link(Subject("approvals.consent", str(row.consent_id)), "its grant")
        effect = row.looks_at_id or getattr(getattr(row, "effect", None), "pk", None)
        if effect is not None:
            yield Link(Subject("approvals.effect", str(effect)), "the act")
