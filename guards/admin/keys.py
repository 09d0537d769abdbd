"""Keys in the console: those that count, and those that wait for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget

from guards.fronts.console import Act, operator
from guards.fronts.forms import Button, ButtonAdmin, read
from guards.models import CandidateKey, Contact, PinnedKey
from guards.services import keys


class RemovalForm(forms.Form):
    """Why a key counts no longer."""

    because = forms.ChoiceField(
        label="Why",
        choices=[
            ("removed", "no longer wanted"),
            ("revoked", "its owner revoked it"),
        ],
        widget=UnfoldAdminSelectWidget,
    )


class OwnerForm(forms.Form):
    """Whose key it is."""

    contact = forms.ModelChoiceField(
        queryset=Contact.objects.filter(is_pattern=False),
        label="Pin it to",
        widget=UnfoldAdminSelectWidget,
        help_text="Compare the full fingerprint with its owner first, over another channel.",
    )


@admin.register(PinnedKey)
class PinnedKeyAdmin(ButtonAdmin):
    """Keys that count. Only a full primary fingerprint proves anything; the UID proves nothing."""

    empty_state = "Open a contact and pin its key: without one, nothing it signs is verified."
    empty_icon = "key"
    list_display = ("fingerprint", "contact", "uid", "show_state", "expires_at", "pinned_at")
    list_filter = (("removed_at", admin.EmptyFieldListFilter), "expires_at")
    list_select_related = ("contact",)
    search_fields = ("fingerprint", "uid", "contact__address", "contact__name")
    date_hierarchy = "pinned_at"
    fields = (
        "contact",
        "fingerprint",
        "uid",
        "expires_at",
        "pinned_by",
        "pinned_at",
        "removed_at",
    )

    @display(
        description="State",
        label={"counts": "success", "expired": "danger", "removed": "default"},
    )
    def show_state(self, pin: PinnedKey) -> str:
        """Whether the key counts now."""
        if pin.removed_at is not None:
            return "removed"
        expired = pin.expires_at is not None and pin.expires_at <= timezone.now()
        return "expired" if expired else "counts"

    def acts(self) -> Mapping[str, Act]:
        """Let it count no longer."""
        return {"remove": self.remove}

    def buttons(self, request: HttpRequest, row: PinnedKey) -> Iterable[Button]:
        """Offered while it counts."""
        if row.removed_at is None:
            yield Button("remove", "Remove this key", "key_off", look="danger", form=RemovalForm())

    def remove(self, request: HttpRequest, object_id: str) -> str:
        """Mark it removed; the row stays."""
        because = read(RemovalForm(request.POST))["because"]
        pin = PinnedKey.objects.select_related("contact").get(pk=object_id)
        keys.remove_pin(pin=pin, by=operator(request), because=because)
        return f"Key {pin.fingerprint} counts no longer."


@admin.register(CandidateKey)
class CandidateKeyAdmin(ButtonAdmin):
    """Keys that were seen. None of them counts in a verdict until a person pins it."""

    empty_state = "Keys attached to mail will wait here until you pin or drop them."
    empty_icon = "vpn_key_alert"
    list_display = ("fingerprint", "uid", "seen_from", "source", "first_seen_at")
    search_fields = ("fingerprint", "uid", "seen_from", "source")
    date_hierarchy = "first_seen_at"
    fields = ("fingerprint", "uid", "seen_from", "source", "first_seen_at")
    act_permissions: ClassVar = {"pin": ("guards.add_pinnedkey",)}

    def acts(self) -> Mapping[str, Act]:
        """Pin it, or forget it."""
        return {"pin": self.pin, "drop": self.drop}

    def buttons(self, request: HttpRequest, row: CandidateKey) -> Iterable[Button]:
        """Both, always."""
        yield Button("pin", "Pin this key", "key", form=OwnerForm())
        yield Button("drop", "Drop it", "delete", look="danger")

    def pin(self, request: HttpRequest, object_id: str) -> str:
        """Pin it to a contact that a person chose."""
        contact = read(OwnerForm(request.POST))["contact"]
        candidate = CandidateKey.objects.get(pk=object_id)
        pinned = keys.pin_key(
            contact=contact, key=bytes(candidate.public_key), by=operator(request)
        )
        return f"Key {pinned.fingerprint} counts for {contact.address} now."

    def drop(self, request: HttpRequest, object_id: str) -> str:
        """Forget it."""
        candidate = CandidateKey.objects.get(pk=object_id)
        keys.drop_candidate(candidate=candidate, by=operator(request))
        return f"Key {candidate.fingerprint} is forgotten."

    def act_target(self, request: HttpRequest, object_id: str, act: str) -> str:
        """The list: pinned or dropped, the candidate is gone."""
        if not CandidateKey.objects.filter(pk=object_id).exists():
            return reverse(self._name("changelist"))
        return super().act_target(request, object_id, act)
