"""API tokens in the console: minted and shown once, revoked at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from guards import registry
from guards.fronts.console import Act, operator
from guards.fronts.forms import Button, ServiceAdmin, ServiceForm
from guards.models import ApiToken
from guards.services import tokens

_SECRET = "countersign_minted_secret"  # noqa: S105


def _scope_choices() -> list[tuple[str, str]]:
    return [(name, f"{name} · {meaning}") for name, meaning in registry.scopes().items()]


class TokenForm(ServiceForm):
    """What a new token may do."""

    scopes = forms.MultipleChoiceField(
        choices=_scope_choices,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=(
            "Give as little as the holder needs. approvals:answer is for a human identity only."
        ),
    )

    class Meta:
        model = ApiToken
        fields = ("label", "identity", "scopes", "project", "expires_at")
        help_texts = {
            "label": "Who holds it, in your own words.",
            "identity": "It sees what this identity may see. Empty: every identity's.",
            "project": (
                "A project's slug, or empty for all. With a project and without an identity it "
                "sees that project only, and nobody's mail."
            ),
            "expires_at": "Empty: until it is revoked.",
        }


@admin.register(ApiToken)
class ApiTokenAdmin(ServiceAdmin):
    """Bearer tokens of the API. The secret is shown once, when the token is minted."""

    form = TokenForm
    changes = False
    empty_state = "Mint a token for whoever should read the API."
    empty_icon = "token"
    list_display = ("label", "prefix", "identity", "show_scopes", "show_state", "last_used_at")
    list_filter = (
        ("revoked_at", admin.EmptyFieldListFilter),
        ("holder_type", admin.EmptyFieldListFilter),
        "identity",
        "project",
    )
    list_select_related = ("identity",)
    search_fields = ("label", "prefix", "identity__handle", "project")

    @display(description="Scopes")
    def show_scopes(self, token: ApiToken) -> str:
        """Its scopes, by name."""
        return ", ".join(token.scopes)

    @display(
        description="State",
        label={"counts": "success", "expired": "warning", "revoked": "danger"},
    )
    def show_state(self, token: ApiToken) -> str:
        """Whether it counts now."""
        if token.revoked_at is not None:
            return "revoked"
        expired = token.expires_at is not None and token.expires_at <= timezone.now()
        return "expired" if expired else "counts"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """What is chosen when it is minted; and later, what became of it."""
        if obj is None:
            return ("label", "identity", "scopes", "project", "expires_at")
        chosen = ("label", "prefix", "identity", "show_scopes", "project", "expires_at")
        return (*chosen, "created_by", "created_at", "last_used_at", "revoked_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Nothing of a minted token changes."""
        return () if obj is None else self.get_fields(request, obj)

    def create(self, request: HttpRequest, values: Mapping[str, Any]) -> ApiToken:
        """Mint it, and keep the secret for the one answer that shows it."""
        token, secret = tokens.mint(by=operator(request), **values)
        setattr(request, _SECRET, secret)
        return token

    def response_add(
        self, request: HttpRequest, obj: ApiToken, post_url_continue: str | None = None
    ) -> HttpResponse:
        """The page that shows the secret: it is in no session, no message and no cache."""
        context = {
            **self.admin_site.each_context(request),
            "title": "Token minted",
            "opts": self.opts,
            "media": self.media,
            "token": obj,
            "secret": getattr(request, _SECRET),
            "token_url": self.page_url(str(obj.pk)),
        }
        response = TemplateResponse(request, "guards/token.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def acts(self) -> Mapping[str, Act]:
        """End it."""
        return {"revoke": self.revoke}

    def buttons(self, request: HttpRequest, row: ApiToken) -> Iterable[Button]:
        """Offered while it was not revoked."""
        if row.revoked_at is None:
            yield Button("revoke", "Revoke this token", "block", look="danger")

    def revoke(self, request: HttpRequest, object_id: str) -> str:
        """End it now."""
        token = ApiToken.objects.get(pk=object_id)
        tokens.revoke(token=token, by=operator(request))
        return f"Token {token.prefix} is revoked."
