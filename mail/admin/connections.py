"""Connections on an account's page: what is connected, verify it, revoke it, connect it anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_http_methods

from approvals.middleware import root_of
from approvals.models import Connection
from approvals.refusals import in_words
from approvals.sentences import reason_sentence
from approvals.services import connections
from guards.exceptions import CountersignError, NotFound
from guards.fronts.console import Act, ConsoleAdmin, may_view, operator
from guards.fronts.forms import forget_raw_secrets
from guards.types import Subject
from mail.models import Account

#: What each group of uses is for, in the words of the page.
_GROUPS = {
    "reply": "To answer: one credential that reads, one that sends",
    "readonly": "To read the mailbox, and nothing else",
}
_USES = {
    Connection.Use.READ: "read: look at the thread, before and after a reply",
    Connection.Use.SEND: "send: the one post of an approved reply",
    Connection.Use.READONLY: "read-only: fetch the mailbox's mail",
}
_WHERE = (
    "env:NAME, file:/path, cmd:program args, pass:path, secret-tool:service/account, "
    "keyring:service/name. Never the value itself."
)


class ConnectionForm(forms.Form):
    """One credential, by reference."""

    use = forms.ChoiceField(choices=list(_USES.items()), label="Use")
    client_id = forms.CharField(max_length=255, label="OAuth client id")
    client_secret_ref = forms.CharField(
        max_length=500, label="Client secret: where it is found", help_text=_WHERE
    )
    refresh_token_ref = forms.CharField(
        max_length=500, label="Refresh token: where it is found", help_text=_WHERE
    )

    def refuse(self, refused: CountersignError) -> None:
        """Show what the service said at its field; send no secret back."""
        self.add_error(refused.field if refused.field in self.fields else None, refused.detail)
        forget_raw_secrets(self, ["client_secret_ref", "refresh_token_ref"])


class ConnectedAdmin(ConsoleAdmin):
    """An account's page with its connections below the form."""

    change_form_outer_after_template = "mail/connections.html"
    act_permissions = {
        "verify-connections": ("approvals.change_connection",),
        "revoke-connection": ("approvals.change_connection",),
        "connect": ("approvals.change_connection",),
    }

    def connection_acts(self) -> Mapping[str, Act]:
        """Ask the provider again, and take one out of use."""
        return {
            "verify-connections": self.verify_connections,
            "revoke-connection": self.revoke_connection,
        }

    def verify_connections(self, request: HttpRequest, object_id: str) -> str:
        """At most five contacts, in this session."""
        with in_words():
            verified = connections.verify(
                account=_subject(object_id),
                group=request.POST.get("group", ""),
                by=operator(request),
                root=root_of(request),
            )
        names = " and ".join(
            f"{one.get_use_display().lower()} as {one.address}" for one in verified
        )
        return f"Verified: {names}."

    def revoke_connection(self, request: HttpRequest, object_id: str) -> str:
        """For good: another one has to be imported."""
        use = request.POST.get("use", "")
        found = _connected(object_id).filter(use=use).first()
        if found is None:
            raise NotFound(f"there is no connection to {use[:16]}", field="use")
        revoked = connections.revoke(
            connection_id=found.pk, by=operator(request), reason=request.POST.get("reason", "")
        )
        use = revoked.get_use_display().lower()
        return f"Revoked: nothing is asked through the {use} connection."

    def pages(self) -> list[URLPattern]:
        """The form that connects."""
        view = self.admin_site.admin_view(
            require_http_methods(["GET", "HEAD", "POST"])(self.connect)
        )
        return [path("<path:object_id>/connect/", view, name=self._short("connect"))]

    def connect(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Import a credential by reference. Nothing is contacted: verifying comes after."""
        account = self.get_object(request, unquote(object_id))
        if account is None:
            return self._nothing_there(request, unquote(object_id))
        if not self.may_act(request, "connect"):
            raise PermissionDenied
        form = ConnectionForm(request.POST or None, initial={"use": request.GET.get("use")})
        if request.method == "POST" and form.is_valid() and self._imported(request, account, form):
            return HttpResponseRedirect(f"{self.page_url(str(account.pk))}#cs-connections")
        context = {
            **self.admin_site.each_context(request),
            "title": f"Connect {account.name}",
            "opts": self.opts,
            "original": account,
            "form": form,
        }
        return TemplateResponse(request, "mail/connect.html", context)

    def _imported(self, request: HttpRequest, account: Account, form: ConnectionForm) -> bool:
        try:
            with in_words():
                connections.import_connection(
                    account=_subject(str(account.pk)),
                    by=operator(request),
                    root=root_of(request),
                    **form.cleaned_data,
                )
        except CountersignError as refused:
            form.refuse(refused)
            return False
        messages.success(request, "Connected. Now verify it: that asks Google, at most five times.")
        return True

    def connections_of(self, request: HttpRequest, object_id: str | None) -> dict[str, Any]:
        """What the page shows below the form: each group with its connections, newest state."""
        if object_id is None or not may_view(request, Connection):
            return {}
        by_use = {one.use: one for one in _connected(unquote(object_id))}
        groups = [
            {
                "name": name,
                "title": title,
                "entries": [_entry(use, by_use.get(use)) for use in connections.GROUPS[name]],
                "complete": all(use in by_use for use in connections.GROUPS[name]),
            }
            for name, title in _GROUPS.items()
        ]
        return {
            "connection_groups": groups,
            "is_connected": bool(by_use),
            "may_connect": self.may_act(request, "connect"),
        }


def _entry(use: str, connection: Connection | None) -> dict[str, object]:
    if connection is None:
        return {"use": use, "label": Connection.Use(use).label, "row": None}
    reason = connection.reason
    return {
        "use": use,
        "label": connection.get_use_display(),
        "row": connection,
        "says": reason_sentence(reason) or reason.replace("_", " ") if reason else "",
    }


def _connected(account_id: str) -> QuerySet[Connection]:
    rows = Connection.objects.filter(account_type=Account._meta.label_lower, account_id=account_id)
    return rows.exclude(state=Connection.State.REVOKED)


def _subject(account_id: str) -> Subject:
    return Subject(Account._meta.label_lower, account_id)
