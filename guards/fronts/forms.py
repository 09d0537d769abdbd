"""Admin forms behind which a service stands, and buttons that take input.

The admin's add and change POST runs inside a transaction: only services that contact nothing may
stand behind it. What contacts something (GnuPG, a server) is an act with a `Button`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from django import forms
from django.contrib.admin.utils import unquote
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import reverse

from guards import secrets
from guards.exceptions import CountersignError, InvalidInput
from guards.fronts.console import ConsoleAdmin

_REFUSAL = "countersign_refusal"


def forget_raw_secrets(form: forms.Form | forms.ModelForm[Any], names: Iterable[str]) -> None:
    """Send nothing back that was typed where a secret reference belongs and is none."""
    for name in names:
        typed = form.data.get(form.add_prefix(name), "")
        if not (isinstance(typed, str) and typed):
            continue
        try:
            secrets.validate_reference(typed)
        except InvalidInput:
            kept = cast(QueryDict, form.data).copy()
            kept[form.add_prefix(name)] = ""
            form.data = kept


class ServiceForm(forms.ModelForm[Any]):
    """A model form whose service may have refused; then it shows the refusal at its field."""

    refusal: ClassVar[CountersignError | None] = None

    def clean(self) -> dict[str, Any] | None:
        """Add what the service said to what the fields say."""
        cleaned = super().clean()
        if self.refusal is not None:
            field = self.refusal.field if self.refusal.field in self.fields else None
            rule = f" (rule: {self.refusal.rule})" if self.refusal.rule else ""
            self.add_error(field, f"{self.refusal.detail}{rule}")
            forget_raw_secrets(self, [name for name in self.fields if name.endswith("_ref")])
        return cleaned


@dataclass(frozen=True, slots=True)
class Button:
    """An act as the page shows it: `word` is its address, `form` what it asks for."""

    word: str
    label: str
    icon: str = ""
    look: str = ""
    form: forms.Form | None = None
    url: str = ""


class ButtonAdmin(ConsoleAdmin):
    """A read-only model whose page has buttons that take input."""

    change_form_outer_after_template = "guards/buttons.html"

    def buttons(self, request: HttpRequest, row: Any) -> Iterable[Button]:
        """The buttons of this row. Each word is one of `acts`."""
        return ()

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The admin's page, with the buttons below it."""
        row = self.get_object(request, unquote(object_id))
        offered = self.buttons(request, row) if row is not None else ()
        shown = [button for button in offered if self.may_act(request, button.word)]
        context = {"buttons": [self._with_address(button, row) for button in shown]}
        return super().change_view(request, object_id, form_url, context | (extra_context or {}))

    def _with_address(self, button: Button, row: Model | None) -> Button:
        name = self._name(button.word)
        address = reverse(name, args=[row.pk if row is not None else ""])
        return Button(button.word, button.label, button.icon, button.look, button.form, address)


class ServiceAdmin(ButtonAdmin):
    """A model that people add and change in forms; services write it.

    `create` and `update` call one service each and return the row.
    """

    form = ServiceForm
    adds = True
    changes = True

    @abstractmethod
    def create(self, request: HttpRequest, values: Mapping[str, Any]) -> Model:
        """Call the service that adds."""

    def update(self, request: HttpRequest, row: Any, values: Mapping[str, Any]) -> Model:
        """Call the service that changes."""
        raise NotImplementedError

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Django's own permission, where there is something to add."""
        return self.adds and bool(request.user.has_perm(self._permission("add")))

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Django's own permission, where there is something to change."""
        return self.changes and bool(request.user.has_perm(self._permission("change")))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """The admin's view; a refusal rolls back and comes back as an error of the form."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except CountersignError as refusal:
            setattr(request, _REFUSAL, refusal)
            return super().changeform_view(request, object_id, form_url, extra_context)

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """The form, told of a refusal of this request."""
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"refusal": getattr(request, _REFUSAL, None)})

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        """Let the service write, and show what it wrote."""
        values: Mapping[str, Any] = form.cleaned_data
        if change:
            written = self.update(request, type(obj)._base_manager.get(pk=obj.pk), values)
        else:
            written = self.create(request, values)
        obj.__dict__.update(written.__dict__)

    def _permission(self, verb: str) -> str:
        return f"{self.opts.app_label}.{verb}_{self.opts.model_name}"


def read(form: forms.Form) -> dict[str, Any]:
    """What was typed into a button's form; InvalidInput says what is wrong with it."""
    if form.is_valid():
        return form.cleaned_data
    field, errors = next(iter(form.errors.items()))
    label = form.fields[field].label or field if field in form.fields else field
    raise InvalidInput(f"{label}: {' '.join(str(error) for error in errors)}", field=field)
