"""Planning rules: the form that checks before it saves, and the trial beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_safe
from unfold.decorators import display
from unfold.widgets import UnfoldAdminTextareaWidget

from guards.fronts.console import Act, ConsoleAdmin, operator
from pipelines import selectors
from pipelines.admin.trials import dry_run_page, recent_executables, trial_of
from pipelines.exceptions import RuleInvalid
from pipelines.models import Rule
from pipelines.services import rules as rule_services


class RuleForm(ModelForm[Rule]):
    """A planning rule; the service says what is wrong with it, at the field."""

    class Meta:
        model = Rule
        fields = ("name", "position", "is_active", "identity", "sender", "kind", "match", "calls")
        help_texts = {
            "position": "Rules are tried from the lowest; the first that fits plans the work.",
            "identity": "Empty: for mail to any identity.",
            "sender": "An exact address or a pattern. Empty: anybody who may execute.",
            "match": "Words that must all occur in the signed text, or one RE2 expression.",
            "calls": '[{"command": "greet", "args": {"name": {"group": "name"}}}]',
        }
        widgets = {"match": UnfoldAdminTextareaWidget(attrs={"rows": 2})}

    def _post_clean(self) -> None:
        """Ask the service's own check."""
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        try:
            rule_services.check_rule(**self.checked())
        except RuleInvalid as problem:
            top = (problem.field or "").split("[")[0].split(".")[0]
            text = f"{problem.field}: {problem.detail}" if top != problem.field else problem.detail
            self.add_error(top if top in self.fields else None, text)

    def checked(self) -> dict[str, Any]:
        """The fields that a check looks at; a saved rule's name is no field of the form."""
        return {
            name: self.cleaned_data.get(name, getattr(self.instance, name))
            for name in ("name", "match", "calls", "kind", "sender")
        }


@admin.register(Rule)
class RuleAdmin(ConsoleAdmin):
    """Who may ask for what in which words."""

    form = RuleForm
    change_form_outer_after_template = "pipelines/rule_trial.html"
    empty_state = (
        "A rule turns signed words into calls of signed commands. Without one nothing is planned."
    )
    empty_icon = "rule"
    list_display = (
        "name",
        "position",
        "is_active",
        "show_match",
        "show_calls",
        "hits",
        "last_hit_at",
    )
    list_filter = ("is_active", "kind", "identity")
    search_fields = ("name", "match", "sender")
    fieldsets = (
        (None, {"fields": (("name", "position", "is_active"),)}),
        ("When", {"fields": (("identity", "sender"), "kind", "match")}),
        ("Then", {"fields": ("calls",)}),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A service stands behind the form."""
        return bool(request.user.has_perm("pipelines.add_rule"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A service stands behind the form."""
        return bool(request.user.has_perm("pipelines.change_rule"))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """A rule is known by its name."""
        return ("name",) if obj else ()

    @display(description="When")
    def show_match(self, rule: Rule) -> str:
        """The match, shortened."""
        return rule.match if len(rule.match) < 60 else f"{rule.match[:57]}…"

    @display(description="Then")
    def show_calls(self, rule: Rule) -> str:
        """The commands in order."""
        calls = [call for call in rule.calls or () if isinstance(call, Mapping)]
        return " → ".join(str(call.get("command", "?")) for call in calls)

    def save_model(self, request: HttpRequest, obj: Rule, form: RuleForm, change: bool) -> None:
        """The service saves."""
        saved = rule_services.save_rule(
            name=obj.name,
            match=obj.match,
            calls=obj.calls,
            kind=obj.kind,
            sender=obj.sender,
            identity=obj.identity,
            position=obj.position,
            is_active=obj.is_active,
            by=operator(request),
        )
        obj.pk = saved.pk
        obj._state.adding = False
        for problem in rule_services.unmet_calls(calls=saved.calls):
            messages.warning(request, f"Saved, but {problem}: so far this rule starts nothing.")

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """The event log is the one record."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """The event log is the one record."""

    def acts(self) -> Mapping[str, Act]:
        """Take it away."""
        return {"remove": self.remove}

    def pages(self) -> list[URLPattern]:
        """The dry run of one message."""

        def page(request: HttpRequest, message_id: int) -> HttpResponse:
            return dry_run_page(self, request, message_id)

        view = self.admin_site.admin_view(require_safe(page))
        return [path("dry-run/<int:message_id>/", view, name=self._short("dry-run"))]

    def remove(self, request: HttpRequest, object_id: str) -> str:
        """The rule plans nothing any more."""
        rule = Rule.objects.get(pk=object_id)
        rule_services.remove_rule(name=rule.name, by=operator(request))
        return f"The rule {rule.name} is gone."

    def act_target(self, request: HttpRequest, object_id: str, act: str) -> str:
        """Back to the list."""
        return reverse("admin:pipelines_rule_changelist")

    def _hits(self, request: HttpRequest, object_id: str | None) -> list[dict[str, Any]]:
        """The rule's hits of the last days, for a plot of plain bars."""
        rule = self.get_object(request, unquote(object_id)) if object_id else None
        counted = selectors.hits_by_day(rule) if rule is not None else []
        most = max((hits for _, hits in counted), default=0)
        return [
            {"day": day, "hits": hits, "height": round(100 * hits / most) if most else 0}
            for day, hits in counted
        ]

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """With the trial beside the form: `?message=ID` shows what all rules make of that mail."""
        context = {
            "may_act": self.may_act(request),
            "trial": trial_of(request),
            "hits": self._hits(request, object_id),
            "recent_messages": recent_executables(request),
            **(extra_context or {}),
        }
        response: HttpResponse = super().changeform_view(request, object_id, form_url, context)
        return response
