"""Identities in the console."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display

from guards.fronts.console import Act, operator
from guards.fronts.forms import Button, ServiceAdmin
from guards.models import Identity
from guards.services import identities


@admin.register(Identity)
class IdentityAdmin(ServiceAdmin):
    """Whom this installation acts as, and whom it knows as people."""

    empty_state = "Add the agent whose mailbox you want to watch, with its address."
    empty_icon = "badge"
    list_display = (
        "handle",
        "name",
        "email",
        "kind",
        "show_policy",
        "show_binding",
        "is_default",
        "is_active",
    )
    list_filter = ("kind", "reply_policy", "recipient_binding", "is_active")
    search_fields = ("handle", "name", "email", "openpgp_fingerprint")
    ordering = ("handle",)
    fieldsets = (
        (None, {"fields": ("handle", "name", "email", "kind", "is_active")}),
        (
            "What it may do by itself",
            {
                "fields": ("reply_policy", "recipient_binding"),
                "description": (
                    "With `required`, a signed message must name this identity in its signed part: "
                    "in a protected To, or by address or @handle in its first line."
                ),
            },
        ),
        (
            "Signing",
            {
                "fields": ("openpgp_fingerprint", "gpg_home", "passphrase_ref"),
                "description": (
                    "The key must have an expiry date. The passphrase is a reference such as "
                    "file:/path or env:NAME, never the passphrase itself."
                ),
            },
        ),
    )

    @display(
        description="Replies",
        ordering="reply_policy",
        label={"send at once": "info", "ask first": "warning"},
    )
    def show_policy(self, identity: Identity) -> str:
        """The reply policy in a word."""
        automatic = identity.reply_policy == Identity.ReplyPolicy.AUTO
        return "send at once" if automatic else "ask first"

    @display(
        description="Recipient binding",
        ordering="recipient_binding",
        label={"required": "success", "off": "danger"},
    )
    def show_binding(self, identity: Identity) -> str:
        """Whether signed text must name this identity."""
        return identity.recipient_binding

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """A handle stays what it is: tokens, signatures and mail name it."""
        return ("handle",) if obj is not None else ()

    def create(self, request: HttpRequest, values: Mapping[str, Any]) -> Identity:
        """Through the service."""
        return identities.create_identity(by=operator(request), **values)

    def update(self, request: HttpRequest, row: Identity, values: Mapping[str, Any]) -> Identity:
        """Through the service."""
        return identities.update_identity(identity=row, by=operator(request), **values)

    def acts(self) -> Mapping[str, Act]:
        """Make it the one that is meant where none is named."""
        return {"make-default": self.make_default}

    def buttons(self, request: HttpRequest, row: Identity) -> Iterable[Button]:
        """Offered where it would change something."""
        if row.is_default or not row.is_active:
            return []
        return [Button("make-default", "Make this the default identity", "star")]

    def make_default(self, request: HttpRequest, object_id: str) -> str:
        """Choose the default identity."""
        identity = Identity.objects.get(pk=object_id)
        identities.set_default(identity=identity, by=operator(request))
        return f"{identity.handle} is the default identity now."
