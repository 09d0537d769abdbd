"""The address book in the console: contacts, their aliases and keys, and what they may ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from unfold.admin import TabularInline
from unfold.decorators import display
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from guards.addresses import fold
from guards.exceptions import InvalidInput
from guards.fronts.console import Act, operator
from guards.fronts.forms import Button, ServiceAdmin, ServiceForm, read
from guards.models import Contact, ContactAlias, Identity, Permission, PinnedKey
from guards.services import contacts, keys, permissions
from guards.types import Rwx

#: What a person may choose from; DES-012's eight sets, the useful ones first.
RIGHTS = [
    ("---", "--- · nothing"),
    ("r--", "r-- · read"),
    ("rw-", "rw- · read and be written to"),
    ("rwx", "rwx · read, be written to, execute"),
    ("r-x", "r-x · read and execute"),
    ("-w-", "-w- · be written to"),
    ("-wx", "-wx · be written to and execute"),
    ("--x", "--x · execute"),
]


class ContactForm(ServiceForm):
    """A contact's own fields."""

    class Meta:
        model = Contact
        fields = ("name", "address", "notes")
        help_texts = {
            "address": (
                "One exact address, or a pattern with * ? or [set], such as *@mail.example.org. "
                "A pattern may read at most (r--)."
            )
        }

    def clean_address(self) -> str:
        """Addresses are kept in lower case."""
        return fold(self.cleaned_data["address"])


class AliasForm(forms.Form):
    """One more exact address."""

    address = forms.CharField(
        label="Another exact address",
        widget=UnfoldAdminTextInputWidget,
        help_text="It carries all rights of this contact.",
    )


class AliasChoiceForm(forms.Form):
    """One of the contact's aliases."""

    alias = forms.ModelChoiceField(
        queryset=ContactAlias.objects.none(), label="Alias", widget=UnfoldAdminSelectWidget
    )

    def __init__(self, contact: Contact, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["alias"].queryset = contact.aliases.all()  # type: ignore[attr-defined]


class GrantForm(forms.Form):
    """Rights for one identity."""

    identity = forms.ModelChoiceField(
        queryset=Identity.objects.all(), label="For identity", widget=UnfoldAdminSelectWidget
    )
    rwx = forms.ChoiceField(label="Rights", choices=RIGHTS, widget=UnfoldAdminSelectWidget)


class KeyForm(forms.Form):
    """A public key, pasted or as a file."""

    text = forms.CharField(
        label="Public key",
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
        help_text="Armoured (BEGIN PGP PUBLIC KEY BLOCK). Compare its fingerprint with its owner.",
    )
    file = forms.FileField(
        label="… or a key file", required=False, widget=UnfoldAdminFileFieldWidget, max_length=200
    )

    def key(self) -> bytes:
        """The key's bytes; InvalidInput where none was given."""
        values = read(self)
        upload = values.get("file")
        content = upload.read() if upload else str(values.get("text", "")).encode()
        if not content.strip():
            raise InvalidInput("paste a public key or choose a file", field="key")
        return bytes(content)


class _ReadOnlyInline(TabularInline[Any, Contact]):
    """Rows of a contact; its buttons change them."""

    extra = 0
    can_delete = False
    show_change_link = False
    hide_title = True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Buttons add."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Buttons change."""
        return False


class AliasInline(_ReadOnlyInline):
    """Further exact addresses."""

    model = ContactAlias
    fields = ("address",)
    verbose_name_plural = "aliases"


class PermissionInline(_ReadOnlyInline):
    """What it may ask, identity by identity."""

    model = Permission
    fields = ("identity", "read", "write", "execute", "granted_by", "updated_at")
    readonly_fields = ("updated_at",)


class PinInline(_ReadOnlyInline):
    """Keys that count for it, or did."""

    model = PinnedKey
    fields = ("fingerprint", "uid", "expires_at", "pinned_by", "pinned_at", "removed_at")
    verbose_name_plural = "pinned keys"


@admin.register(Contact)
class ContactAdmin(ServiceAdmin):
    """Somebody who writes to us."""

    form = ContactForm
    empty_state = "Add the people and systems whose mail your agents may see."
    empty_icon = "contacts"
    next_step = "Now set its rights for an identity, and pin its key."
    list_display = ("address", "name", "show_kind", "show_rights", "show_keys")
    list_filter = ("is_pattern", "permissions__identity", "permissions__execute")
    search_fields = ("address", "name", "aliases__address", "pins__fingerprint", "notes")
    ordering = ("address",)
    fields = ("name", "address", "notes")
    act_permissions: ClassVar = {
        "grant": ("guards.change_permission",),
        "pin": ("guards.add_pinnedkey",),
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With what the list shows, in a constant number of queries."""
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.prefetch_related("permissions__identity", "pins")

    @display(description="Kind", label={"exact": "info", "pattern": "warning"})
    def show_kind(self, contact: Contact) -> str:
        """Whether it is one address or many."""
        return "pattern" if contact.is_pattern else "exact"

    @display(description="Rights")
    def show_rights(self, contact: Contact) -> str:
        """Identity by identity; no row means nothing."""
        rights = (f"{row.identity.handle} {row.rwx}" for row in contact.permissions.all())
        return ", ".join(rights) or "---"

    @display(description="Keys")
    def show_keys(self, contact: Contact) -> int:
        """How many keys count for it now."""
        return sum(1 for pin in contact.pins.all() if pin.removed_at is None)

    def get_inlines(self, request: HttpRequest, obj: Any) -> list[Any]:
        """Those that have something to show."""
        if obj is None:
            return []
        filled = {
            PermissionInline: obj.permissions.exists(),
            AliasInline: obj.aliases.exists(),
            PinInline: obj.pins.exists(),
        }
        return [inline for inline, has_rows in filled.items() if has_rows]

    def create(self, request: HttpRequest, values: Mapping[str, Any]) -> Contact:
        """Through the service."""
        return contacts.add_contact(by=operator(request), **values)

    def update(self, request: HttpRequest, row: Contact, values: Mapping[str, Any]) -> Contact:
        """Through the service."""
        return contacts.update_contact(contact=row, by=operator(request), **values)

    def acts(self) -> Mapping[str, Act]:
        """What a form in the admin's transaction must not or cannot do."""
        return {
            "grant": self.grant,
            "pin": self.pin,
            "add-alias": self.add_alias,
            "remove-alias": self.remove_alias,
            "remove": self.remove,
        }

    def buttons(self, request: HttpRequest, row: Contact) -> Iterable[Button]:
        """A pattern has neither aliases nor keys."""
        yield Button("grant", "Set rights", "lock_open", form=GrantForm())
        if not row.is_pattern:
            yield Button("pin", "Pin this key", "key", form=KeyForm())
            yield Button("add-alias", "Add alias", "alternate_email", form=AliasForm())
            if row.aliases.exists():
                yield Button("remove-alias", "Remove alias", form=AliasChoiceForm(row))
        yield Button("remove", "Remove contact", "delete", look="danger")

    def grant(self, request: HttpRequest, object_id: str) -> str:
        """Set the rights for one identity."""
        values = read(GrantForm(request.POST))
        contact = Contact.objects.get(pk=object_id)
        identity, rwx = values["identity"], Rwx.parse(values["rwx"])
        permissions.grant(identity=identity, contact=contact, rwx=rwx, by=operator(request))
        return f"{contact.address} has {rwx} for {identity.handle}."

    def pin(self, request: HttpRequest, object_id: str) -> str:
        """Read a key with GnuPG and pin its primary fingerprint."""
        key = KeyForm(request.POST, request.FILES).key()
        contact = Contact.objects.get(pk=object_id)
        pinned = keys.pin_key(contact=contact, key=key, by=operator(request))
        return f"Key {pinned.fingerprint} ({pinned.uid}) counts for {contact.address} now."

    def add_alias(self, request: HttpRequest, object_id: str) -> str:
        """Give the contact one more address."""
        values = read(AliasForm(request.POST))
        contact = Contact.objects.get(pk=object_id)
        alias = contacts.add_alias(contact=contact, address=values["address"], by=operator(request))
        return f"{alias.address} belongs to {contact} now."

    def remove_alias(self, request: HttpRequest, object_id: str) -> str:
        """Take an address away."""
        contact = Contact.objects.get(pk=object_id)
        alias = read(AliasChoiceForm(contact, request.POST))["alias"]
        contacts.remove_alias(alias=alias, by=operator(request))
        return f"{alias.address} is a stranger now."

    def remove(self, request: HttpRequest, object_id: str) -> str:
        """Remove the contact with its rights."""
        contact = Contact.objects.get(pk=object_id)
        contacts.remove_contact(contact=contact, by=operator(request))
        return f"{contact} is a stranger now."

    def act_target(self, request: HttpRequest, object_id: str, act: str) -> str:
        """The list, once the contact is gone."""
        if not Contact.objects.filter(pk=object_id).exists():
            return reverse(self._name("changelist"))
        return super().act_target(request, object_id, act)


class PermissionForm(ServiceForm):
    """Who may ask what of whom."""

    class Meta:
        model = Permission
        fields = ("identity", "contact", "read", "write", "execute")
        help_texts = {
            "read": "Messages are shown, in full.",
            "write": "Mail may be sent to this contact.",
            "execute": "A trusted or verified message may start commands.",
        }


@admin.register(Permission)
class PermissionAdmin(ServiceAdmin):
    """The matrix of identities and contacts; no row means nothing, nothing is inherited."""

    form = PermissionForm
    empty_state = "Nobody may ask anything yet: strangers' mail is held."
    empty_icon = "lock"
    list_display = ("contact", "identity", "show_rwx", "granted_by", "updated_at")
    list_filter = ("identity", "read", "write", "execute")
    list_select_related = ("identity", "contact")
    search_fields = ("contact__address", "contact__name", "identity__handle")
    fields = ("identity", "contact", "read", "write", "execute", "granted_by", "updated_at")

    @display(description="Rights")
    def show_rwx(self, permission: Permission) -> str:
        """The three flags as one word."""
        return str(permission.rwx)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """A row stays between the same two."""
        kept = ("granted_by", "updated_at")
        return ("identity", "contact", *kept) if obj is not None else kept

    def create(self, request: HttpRequest, values: Mapping[str, Any]) -> Permission:
        """Through the service."""
        return self._grant(request, values["identity"], values["contact"], values)

    def update(
        self, request: HttpRequest, row: Permission, values: Mapping[str, Any]
    ) -> Permission:
        """Through the service."""
        return self._grant(request, row.identity, row.contact, values)

    def _grant(
        self,
        request: HttpRequest,
        identity: Identity,
        contact: Contact,
        values: Mapping[str, Any],
    ) -> Permission:
        rwx = Rwx(values["read"], values["write"], values["execute"])
        return permissions.grant(identity=identity, contact=contact, rwx=rwx, by=operator(request))
