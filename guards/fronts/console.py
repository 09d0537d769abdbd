"""What every console page of every app is built from: pages, acts, panels.

A page shows and never changes anything. An act is a POST of ours that calls one service; a GET on
it is 405. A panel is a piece that an upper app puts onto a lower app's page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import DataError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_POST
from unfold.admin import ModelAdmin

from guards.exceptions import CountersignError
from guards.types import Asker

Act = Callable[[HttpRequest, str], str | None]

#: What the filters of a list and its date hierarchy put behind a column's name.
_FILTER_OPERATORS = frozenset({"exact", "in", "isnull", "gte", "lt", "isempty"})
_DATE_OPERATORS = frozenset({"year", "month", "day", "gte", "lt"})


def operator(request: HttpRequest) -> Asker:
    """The person behind a console request."""
    return Asker("operator", request.user.get_username())


def may_view(request: HttpRequest, model: type[Model]) -> bool:
    """Whoever may view or change a model in Django's own terms may look at its rows."""
    label, name = model._meta.app_label, model._meta.model_name
    return any(request.user.has_perm(f"{label}.{verb}_{name}") for verb in ("view", "change"))


@dataclass(frozen=True, slots=True)
class Panel:
    """A piece of another app on a page: its template and what the template needs.

    `last` pieces stand at the end of the page, below everything of its own.
    """

    template: str
    context: Mapping[str, object]
    last: bool = False


PanelSource = Callable[[HttpRequest, Any], Panel | None]
_panels: dict[str, list[PanelSource]] = {}


def register_panel(page: str, source: PanelSource) -> None:
    """Put a panel onto the page of a model (`mail.message`). Called once, in an app's `ready()`."""
    sources = _panels.setdefault(page, [])
    if source not in sources:
        sources.append(source)


def panels(page: str, request: HttpRequest, row: Model) -> list[Panel]:
    """What upper apps have to say about this row, in the order in which they registered."""
    found = (source(request, row) for source in _panels.get(page, ()))
    return [panel for panel in found if panel is not None]


class ConsoleAdmin(ModelAdmin[Any]):
    """A list that an operator reads: nothing is added, changed or deleted through the admin itself.

    `empty_state` says what to do when there is nothing yet. `next_step` says what to do with a new
    row, whose page is then opened. `actions` are off: acts are POST views.
    """

    actions = None
    empty_state: str = "Nothing here yet."
    empty_icon: str = "inbox"
    next_step: str = ""
    list_per_page = 50
    show_full_result_count = False
    list_filter_submit = False
    compressed_fields = True
    #: Django permissions that an act needs beyond change on its own model.
    act_permissions: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: Acts that are about no row in particular.
    acts_on_all: ClassVar[frozenset[str]] = frozenset()

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Rows are written by services."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are written by services."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Rows are kept."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whoever may view or change the model in Django's own terms may look."""
        return may_view(request, self.model)

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Back to the list, or on to the new row's page where there is a next step."""
        if not self.next_step or {"_addanother", "_popup"} & set(request.POST):
            return super().response_add(request, obj, post_url_continue)
        messages.success(request, f"Added {obj}. {self.next_step}")
        return HttpResponseRedirect(reverse(self._name("change"), args=[obj.pk]))

    def may_act(self, request: HttpRequest, word: str = "") -> bool:
        """Whoever has Django's change permission on the model may press its buttons.

        A button that writes rows of another model asks for `act_permissions` as well.
        """
        own = f"{self.opts.app_label}.change_{self.opts.model_name}"
        return bool(request.user.has_perms((own, *self.act_permissions.get(word, ()))))

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only what the list's own filters ask.

        Django lets an address filter by any column, which would answer questions about covered
        text, digests and secret references.
        """
        offered = self.get_list_filter(request) if request is not None else self.list_filter
        names = {entry[0] if isinstance(entry, tuple | list) else entry for entry in offered}
        wanted = lookup.removesuffix("__id__exact").removesuffix("__id__isnull")
        column, _, operator = wanted.rpartition("__")
        if wanted in names or (column in names and operator in _FILTER_OPERATORS):
            return True
        return bool(self.date_hierarchy) and (
            column == self.date_hierarchy and operator in _DATE_OPERATORS
        )

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list under its own name; an address that no database can answer is the whole list."""
        named = {"title": str(self.opts.verbose_name_plural).capitalize()}
        try:
            return super().changelist_view(request, named | (extra_context or {}))
        except (ValueError, OverflowError, DataError):
            if not request.GET:
                raise
            return HttpResponseRedirect(f"{request.path}")

    # --- acts -------------------------------------------------------------------------------------

    def acts(self) -> Mapping[str, Act]:
        """The buttons of this model: a word of the address, and what it does with (request, pk).

        An act returns the sentence to show, or None; it raises CountersignError to refuse.
        """
        return {}

    def act_target(self, request: HttpRequest, object_id: str, act: str) -> str:
        """Where the browser goes after an act: the row's page."""
        return self.page_url(object_id)

    def page_url(self, object_id: str) -> str:
        """The row's page."""
        return reverse(self._name("change"), args=[object_id])

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, after our acts and extra pages."""
        acts = [
            path(f"<path:object_id>/{word}/", self._posted(word, act), name=self._short(word))
            for word, act in self.acts().items()
        ]
        return acts + self.pages() + super().get_urls()

    def pages(self) -> list[URLPattern]:
        """Further pages of this model, each wrapped in `self.admin_site.admin_view`."""
        return []

    def _short(self, word: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{word.replace('-', '_')}"

    def _name(self, word: str) -> str:
        return f"admin:{self._short(word)}"

    def _posted(self, word: str, act: Act) -> Callable[..., HttpResponse]:
        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            if not self.may_act(request, word):
                raise PermissionDenied
            key = unquote(object_id)
            if word not in self.acts_on_all and self.get_object(request, key) is None:
                return self._nothing_there(request, key)
            try:
                said = act(request, key)
            except CountersignError as refusal:
                messages.error(request, _refusal_text(refusal))
            else:
                if said:
                    messages.success(request, said)
            return HttpResponseRedirect(self.act_target(request, key, word))

        inside: Callable[..., HttpResponse] = self.admin_site.admin_view(require_POST(view))

        def wrapped(request: HttpRequest, object_id: str) -> HttpResponse:
            if request.method == "POST" and not self.admin_site.has_permission(request):
                return self._after_the_login(request, object_id)
            return inside(request, object_id=object_id)

        return wrapped

    def _after_the_login(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """A press after the session was over: nothing is done, and the login leads to the page."""
        messages.warning(request, "You were not logged in any more, so nothing was done.")
        return redirect_to_login(self.page_url(object_id), reverse("admin:login"))

    def _nothing_there(self, request: HttpRequest, key: str) -> HttpResponse:
        messages.warning(request, f"There is no {self.opts.verbose_name} {key[:64]}.")
        return HttpResponseRedirect(reverse(self._name("changelist")))


def _refusal_text(refusal: CountersignError) -> str:
    text = refusal.detail[:1].upper() + refusal.detail[1:]
    text = text if text.endswith((".", "!", "?")) else f"{text}."
    return f"{text} (rule: {refusal.rule})" if refusal.rule else text


class PageAdmin(ConsoleAdmin):
    """A model whose row has a page of its own instead of the admin's form."""

    page_template: str = ""

    def page(self, request: HttpRequest, row: Any) -> Mapping[str, object]:
        """What the page's template needs, beyond `row`."""
        return {}

    def page_row(self, request: HttpRequest, object_id: str) -> Any:
        """The row, or None."""
        return self.get_object(request, unquote(object_id))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The page. It answers GET and HEAD only."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        row = self.page_row(request, object_id)
        if row is None:
            return self._nothing_there(request, object_id)
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        label = self.opts.label_lower
        context = {
            **self.admin_site.each_context(request),
            "title": str(row),
            "opts": self.opts,
            "original": row,
            "row": row,
            "inline_admin_formsets": [],
            "media": self.media,
            "may_act": self.may_act(request),
            "panels": panels(label, request, row),
            **self.page(request, row),
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, self.page_template, context)
