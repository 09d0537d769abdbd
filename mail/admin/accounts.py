"""Accounts: the form that checks before it saves, a trial connection, and the switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from unfold.decorators import display
from unfold.widgets import UnfoldAdminPasswordWidget

from guards import secrets
from guards.exceptions import CountersignError
from guards.fronts.console import Act, operator
from guards.fronts.forms import forget_raw_secrets
from mail.admin.connections import ConnectedAdmin
from mail.models import Account
from mail.services import account_rules
from mail.services import accounts as account_services

STATE_LABELS = {"ok": "success", "failing": "danger", "disabled": "default", "new": "info"}

_ONCE = (
    "Typed here once: it goes into a file that only this program reads, never into the database."
)


#: What a typed password is for, by its field.
_PURPOSES = {"password": "reading", "smtp_password": "sending"}
#: Which reference a typed password becomes.
_REFERENCES = {"password": "secret_ref", "smtp_password": "smtp_secret_ref"}


class AccountForm(ModelForm[Account]):
    """An account's fields, and its passwords where the operator would rather type them here."""

    password = forms.CharField(
        required=False,
        strip=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        label="Password",
        help_text=_ONCE,
    )
    smtp_password = forms.CharField(
        required=False,
        strip=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        label="SMTP password",
        help_text=f"{_ONCE} Empty: the same as for reading.",
    )

    class Meta:
        model = Account
        fields = ("identity", *sorted(account_services.EDITABLE))
        labels = {
            "secret_ref": "Secret reference",
            "smtp_host": "SMTP host",
            "smtp_port": "SMTP port",
            "smtp_username": "SMTP user",
            "smtp_secret_ref": "SMTP secret reference",
            "authserv_id": "Authserv-id",
            "sign_outbound": "Sign what it sends",
            "preserves_mime": "Preserves MIME",
            "server_files_sent": "Files its own Sent copy",
            "bcc_self": "Sends itself a copy",
            "tls_skip_verify": "Skip certificate checks",
        }
        help_texts = {
            "protocol": (
                "Gmail is read through its own API, and nothing else: leave host, passwords and "
                "everything under Sending empty, and connect it once it is saved."
            ),
            "username": "For Gmail: the mailbox's address, exactly as Google writes it.",
            "folder": "For Gmail: a label, such as INBOX.",
            "host": "The server that the mail is read from.",
            "port": "993 speaks TLS from the first byte; any other port has to offer STARTTLS.",
            "secret_ref": (
                "Where the password is found: env:NAME, file:/path, cmd:program args, pass:path, "
                "secret-tool:service/account, keyring:service/name. Never the password itself."
            ),
            "smtp_host": "The server that sends for this mailbox. Empty: it cannot answer.",
            "smtp_port": "465 speaks TLS from the first byte; 587 has to offer STARTTLS.",
            "from_address": "Empty: the identity's own address.",
            "authserv_id": "The name your own server writes into Authentication-Results.",
            "server_files_sent": (
                "The server itself keeps a copy of what it is given to send. Then a sent message "
                "can be verified. Test connection says whether what lies in Sent fits."
            ),
            "bcc_self": "A blind copy of each message to the address that sends it.",
            "preserves_mime": "The way out changes no byte of a message, so signatures survive.",
            "tls_skip_verify": "Takes any certificate. Only for a server on this machine.",
            "provider": "proton-bridge only where the bridge runs on this very machine.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """With a typed password no reference is asked for, and for Gmail no server at all."""
        super().__init__(*args, **kwargs)
        for name in ("protocol", "secret_ref", "host", "port"):
            if name in self.fields:
                self.fields[name].required = False

    def clean(self) -> dict[str, Any]:
        """A password or a reference; Gmail has neither. The rest is the service's word."""
        cleaned = super().clean() or {}
        protocol = cleaned.get("protocol") or self.instance.protocol
        if "protocol" in self.fields:
            cleaned["protocol"] = protocol
        if protocol == Account.Protocol.GMAIL:
            return {**cleaned, **account_rules.GMAIL_SERVER}
        if not cleaned.get("host") and "host" not in self.errors:
            self.add_error("host", "Say which server the mail is read from.")
        if not cleaned.get("secret_ref") and not cleaned.get("password"):
            self.add_error("secret_ref", "Type the password above, or say here where it is found.")
        return cleaned

    def _get_validation_exclusions(self) -> set[str]:  # Django's own hook, unknown to its stubs
        """The service looks at the constraint on these two as well, and knows the field."""
        inherited: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]
        return inherited | {"sign_outbound", "preserves_mime"}

    def _post_clean(self) -> None:
        """Ask the service's own check, and put what it says at the field that it names."""
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        for field, reference in _REFERENCES.items():
            if self.cleaned_data.get(field):
                setattr(self.instance, reference, self._kept_as(field))
        try:
            account_services.validate(self.instance)
        except CountersignError as problem:
            named = problem.field if problem.field in self.fields else None
            detail = problem.detail.removeprefix(f"{named}: ").rstrip(".")
            forget_raw_secrets(self, _REFERENCES.values())
            self.add_error(named, f"{detail[:1].upper()}{detail[1:]}.")

    def _kept_as(self, field: str) -> str:
        """The bare name under which a typed password is kept.

        What it is for stands in front, so that no name of another account can lead to it.
        """
        return f"mail-{_PURPOSES[field]}-{self.cleaned_data['name']}"

    def values(self) -> dict[str, Any]:
        """What the service takes; typed passwords are put away and become references."""
        taken = {
            name: self.cleaned_data[name]
            for name in account_services.EDITABLE
            if name in self.cleaned_data
        }
        for field, reference in _REFERENCES.items():
            if self.cleaned_data.get(field):
                taken[reference] = secrets.store(self._kept_as(field), self.cleaned_data[field])
        return taken


@admin.register(Account)
class AccountAdmin(ConnectedAdmin):
    """The mailboxes of the identities, each with its way out."""

    form = AccountForm
    change_form_outer_before_template = "mail/account_state.html"
    empty_state = "Point one at any IMAP and SMTP server; its mail is then read, judged and shown."
    empty_icon = "alternate_email"
    next_step = "Now test the connection."
    list_display = ("name", "identity", "show_server", "show_state", "last_success_at", "watched")
    list_filter = ("state", "provider", "identity")
    search_fields = ("name", "host", "username")
    list_select_related = ("identity", "lease")
    fieldsets = (
        (
            None,
            {"fields": (("identity", "name"), ("protocol", "provider"), "poll_interval")},
        ),
        (
            "Reading",
            {"fields": (("host", "port"), "username", "password", "secret_ref", "folder")},
        ),
        (
            "Sending",
            {
                "fields": (
                    ("smtp_host", "smtp_port"),
                    "smtp_username",
                    "smtp_password",
                    "smtp_secret_ref",
                    "from_address",
                    ("sent_folder", "archive_folder"),
                    "bcc_self",
                )
            },
        ),
        (
            "How far it is trusted",
            {
                "fields": (
                    "authserv_id",
                    ("sign_outbound", "preserves_mime"),
                    ("server_files_sent", "tls_skip_verify"),
                )
            },
        ),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A service stands behind the form."""
        return bool(request.user.has_perm("mail.add_account"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A service stands behind the form."""
        return bool(request.user.has_perm("mail.change_account"))

    @display(description="Server")
    def show_server(self, account: Account) -> str:
        """Where its mail lies."""
        if account.protocol == Account.Protocol.GMAIL:
            return f"{account.username} at Gmail, read-only"
        return f"{account.username} at {account.host}:{account.port}"

    @display(description="State", ordering="state", label=STATE_LABELS)
    def show_state(self, account: Account) -> str:
        """The state's word."""
        return account.state

    @display(description="Watched", boolean=True)
    def watched(self, account: Account) -> bool:
        """Whether a process listens to it right now."""
        lease = getattr(account, "lease", None)
        return bool(lease and lease.watching and lease.holder)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """A mailbox stays with its identity, and is read as it always was."""
        return ("identity", "protocol") if obj else ()

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Without the admin's own transaction: a typed password is written to its file first."""
        context = {
            "may_act": self.may_act(request),
            **self.connections_of(request, object_id),
            **(extra_context or {}),
        }
        view = self._changeform_view  # type: ignore[attr-defined]
        response: HttpResponse = view(request, object_id, form_url, context)
        return response

    def save_model(
        self, request: HttpRequest, obj: Account, form: AccountForm, change: bool
    ) -> None:
        """The service saves; the row that the form made is only a candidate."""
        by = operator(request)
        if change:
            account_services.update_account(account_id=obj.pk, by=by, **form.values())
            return
        saved = account_services.create_account(identity=obj.identity, by=by, **form.values())
        obj.pk = saved.pk
        obj._state.adding = False

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """The event log is the one record."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """The event log is the one record."""

    def acts(self) -> Mapping[str, Act]:
        """A trial connection, the switch, and what is connected at a provider."""
        own = {"test": self.test, "disable": self.disable, "enable": self.enable}
        return {**own, **self.connection_acts()}

    def test(self, request: HttpRequest, object_id: str) -> str | None:
        """Log in, open the folder, log in where it sends; nothing is fetched, stored or sent."""
        checks = account_services.test_connection(account_id=int(object_id))
        for check in checks:
            if not check.ok:
                needed = check.check.startswith(("login", "folder", "sending"))
                say = messages.error if needed else messages.warning
                say(request, f"{check.check}: {check.detail or 'failed'}")
        good = [f"{check.check} {check.detail}".strip() for check in checks if check.ok]
        return f"Good: {', '.join(good)}." if good else None

    def disable(self, request: HttpRequest, object_id: str) -> str:
        """No poll, no watch, no send."""
        account_services.disable(account_id=int(object_id), by=operator(request))
        return "Switched off: it is neither read nor used to send."

    def enable(self, request: HttpRequest, object_id: str) -> str:
        """Read it again."""
        account_services.enable(account_id=int(object_id), by=operator(request))
        return "Switched on: it is read at once."
