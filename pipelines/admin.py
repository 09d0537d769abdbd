"""Signed commands, planning rules, and work as it went, in the console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from unfold.decorators import display
from unfold.widgets import UnfoldAdminTextareaWidget

from guards import documents
from guards.exceptions import CountersignError
from guards.fronts.console import Act, ConsoleAdmin, PageAdmin, operator
from mail import selectors as mail_selectors
from mail.models import Message, Outbound
from pipelines.exceptions import RuleInvalid
from pipelines.models import Command, Pipeline, Rule, Stage
from pipelines.services import commands as command_services
from pipelines.services import control, planning
from pipelines.services import rules as rule_services

SIGNATURE_LABELS = {
    "ok": "success",
    "missing": "warning",
    "invalid": "danger",
    "wrong key": "danger",
    "expired key": "danger",
    "could not be checked": "warning",
}
STATUS_LABELS = {
    "planned": "info",
    "queued": "info",
    "running": "info",
    "waiting for approval": "warning",
    "completed": "success",
    "failed": "danger",
    "interrupted": "danger",
}
STAGE_LABELS = {
    "claimed": "info",
    "running": "info",
    "waiting for approval": "warning",
    "succeeded": "success",
    "failed": "danger",
    "interrupted": "danger",
    "incomplete": "warning",
}

#: What a state of a signature means for the command.
SIGNATURES: Mapping[str, str] = {
    "ok": "The owner signed exactly this. It is checked again each time before it runs.",
    "missing": "Nobody has signed it, so it does not run.",
    "invalid": "The signature is not one over exactly this document, so it does not run.",
    "wrong-key": "It is signed, but not by the owner's key, so it does not run.",
    "expired-key": "It was signed with a key that has expired, so it does not run.",
    "operational": "The signature could not be checked, so it does not run for now.",
}


@admin.register(Command)
class CommandAdmin(PageAdmin):
    """The commands that mail may ask for, and whether the owner signed them."""

    page_template = "pipelines/command.html"
    empty_state = "Write one as YAML, sign it with the owner's key, and `load_commands DIR`."
    empty_icon = "terminal"
    list_display = ("name", "show_signature", "runner", "serial", "description", "checked_at")
    list_filter = ("signature_state", "runner")
    search_fields = ("name", "description", "digest")

    @display(description="Signature", ordering="signature_state", label=SIGNATURE_LABELS)
    def show_signature(self, command: Command) -> str:
        """The state's word."""
        return command.get_signature_state_display()

    def acts(self) -> Mapping[str, Act]:
        """A signature that was made elsewhere is taken back here."""
        return {"sign": self.sign}

    def sign(self, request: HttpRequest, object_id: str) -> str:
        """Check a signature over the canonical bytes, and keep it."""
        command = Command.objects.get(pk=object_id)
        signature = request.POST.get("signature", "")
        command_services.accept_signature(
            name=command.name, signature=signature, by=operator(request)
        )
        return f"{command.name} is signed and may run."

    def page(self, request: HttpRequest, row: Command) -> Mapping[str, object]:
        """The document, the bytes to sign, and what the signature is worth."""
        document = row.document
        steps = document.get("steps") or [document]
        return {
            "title": row.name,
            "sentence": SIGNATURES.get(row.signature_state, ""),
            "canonical": documents.canonical(document).decode("utf-8", "replace"),
            "arguments": _declared(document.get("args")),
            "steps": [
                [step.get("binary", ""), *step.get("fixed_args", [])]
                for step in steps
                if isinstance(step, Mapping) and step.get("binary")
            ],
            "rules": list(Rule.objects.filter(calls__icontains=f'"{row.name}"')[:10]),
            "used": Stage.objects.filter(command=row.name).count(),
        }


def _declared(args: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """The declared arguments by name, however the document writes them."""
    if isinstance(args, Mapping):
        return [(name, spec) for name, spec in args.items() if isinstance(spec, Mapping)]
    if isinstance(args, list):
        return [(str(spec.get("name", "")), spec) for spec in args if isinstance(spec, Mapping)]
    return []


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
        super()._post_clean()
        if self.errors:
            return
        try:
            rule_services.check_rule(**self.checked())
        except RuleInvalid as problem:
            top = (problem.field or "").split("[")[0].split(".")[0]
            text = f"{problem.field}: {problem.detail}" if top != problem.field else problem.detail
            self.add_error(top if top in self.fields else None, text)

    def checked(self) -> dict[str, Any]:
        """The fields that a check looks at."""
        return {
            name: self.cleaned_data[name] for name in ("name", "match", "calls", "kind", "sender")
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
        return " → ".join(str(call.get("command", "?")) for call in rule.calls)

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

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> None:
        """The event log is the one record."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:
        """The event log is the one record."""

    def acts(self) -> Mapping[str, Act]:
        """Take it away."""
        return {"remove": self.remove}

    def remove(self, request: HttpRequest, object_id: str) -> str:
        """The rule plans nothing any more."""
        rule = Rule.objects.get(pk=object_id)
        rule_services.remove_rule(name=rule.name, by=operator(request))
        return f"The rule {rule.name} is gone."

    def act_target(self, request: HttpRequest, object_id: str, act: str) -> str:
        """Back to the list."""
        return reverse("admin:pipelines_rule_changelist")

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
            "recent_messages": recent_executables(),
            **(extra_context or {}),
        }
        response: HttpResponse = super().changeform_view(request, object_id, form_url, context)
        return response


@dataclass(frozen=True, slots=True)
class Trial:
    """What the rules make of one message, now, without starting anything."""

    message: Message
    rule: str = ""
    calls: tuple[Any, ...] = ()
    refused: str = ""
    problem: str = ""


def recent_executables() -> list[Message]:
    """The newest messages that could start work: what one would try a rule on."""
    found = Message.objects.filter(action="execute").select_related("account").defer("text")
    return list(found.order_by("-id")[:20])


def trial_of(request: HttpRequest) -> Trial | None:
    """The trial that the address asks for. It judges the stored bytes again and writes nothing."""
    wanted = request.GET.get("message", "")
    if not wanted.isdigit():
        return None
    message = Message.objects.select_related("account__identity").filter(pk=int(wanted)).first()
    return None if message is None else try_on(message)


def try_on(message: Message) -> Trial:
    """Plan a message as a pipeline would, and say what comes out."""
    try:
        text = mail_selectors.reassess(message).executable_text
    except (CountersignError, OSError) as problem:
        return Trial(message, problem=str(problem))
    if text is None:
        return Trial(
            message, problem="It has no text that may start work: see its trust and decision."
        )
    found = planning.try_rules(
        text=text, sender=message.sender, identity_id=message.account.identity_id
    )
    refused = f"{found.refused.rule}: {found.refused.detail}" if found.refused else ""
    return Trial(message, found.rule or "", tuple(found.calls or ()), refused)


@admin.register(Pipeline)
class PipelineAdmin(PageAdmin):
    """Each message's work, from plan to reply."""

    page_template = "pipelines/pipeline.html"
    empty_state = "Mail from a contact with x, surely from that contact, starts one."
    empty_icon = "account_tree"
    list_display = (
        "show_name",
        "show_status",
        "requester",
        "identity",
        "show_stages",
        "created_at",
    )
    list_filter = ("status", "identity", "planner")
    search_fields = ("id", "requester", "planner", "refused_rule")
    date_hierarchy = "created_at"
    list_select_related = ("identity",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pipeline]:
        """With its identity and the number of its stages."""
        rows: QuerySet[Pipeline] = super().get_queryset(request)
        return rows.select_related("identity", "message__account").annotate(size=Count("stages"))

    @display(description="Pipeline", ordering="created_at")
    def show_name(self, pipeline: Pipeline) -> str:
        """The start of its id and who planned it."""
        return f"{str(pipeline.pk)[:8]} · {pipeline.planner}"

    @display(description="Status", ordering="status", label=STATUS_LABELS)
    def show_status(self, pipeline: Pipeline) -> str:
        """The status's word."""
        return pipeline.get_status_display()

    @display(description="Stages", ordering="size")
    def show_stages(self, pipeline: Pipeline) -> int:
        """How many stages it has, the reply included."""
        return int(getattr(pipeline, "size", 0))

    def acts(self) -> Mapping[str, Act]:
        """Work that has not come to its end can be given up."""
        return {"cancel": self.cancel}

    def cancel(self, request: HttpRequest, object_id: str) -> str:
        """No further stage runs."""
        control.cancel(pipeline_id=UUID(object_id), by=operator(request))
        return "Cancelled: no further stage runs."

    def page(self, request: HttpRequest, row: Pipeline) -> Mapping[str, object]:
        """Stages as a timeline, and the reply at its end."""
        reply = Outbound.objects.filter(origin_type="pipelines.pipeline", origin_id=str(row.pk))
        ended = row.finished_at or timezone.now()
        return {
            "title": f"Pipeline {str(row.pk)[:8]}",
            "stages": [_shown(stage) for stage in row.stages.order_by("position")],
            "reply": reply.select_related("effect", "hold").first(),
            "took": (ended - row.started_at).total_seconds() if row.started_at else None,
            "waits_on_person": row.status == Pipeline.Status.WAITING_APPROVAL,
            "interrupted": row.status == Pipeline.Status.INTERRUPTED,
            "can_cancel": row.status not in Pipeline.ENDED and self.may_act(request),
        }


@dataclass(frozen=True, slots=True)
class ShownStage:
    """A stage with what its timeline says: how long it took, how its argv reads, its symbol."""

    row: Stage
    seconds: float | None
    argv: list[list[str]]
    icon: str


_STAGE_ICONS = {
    "succeeded": "check",
    "failed": "close",
    "interrupted": "power_off",
    "running": "play_arrow",
    "claimed": "play_arrow",
    "waiting_approval": "front_hand",
    "incomplete": "question_mark",
    "cancelled": "block",
}


def _shown(stage: Stage) -> ShownStage:
    seconds = None
    if stage.started_at:
        seconds = ((stage.finished_at or timezone.now()) - stage.started_at).total_seconds()
    argv = stage.argv or []
    chain = argv if argv and isinstance(argv[0], list) else [argv] if argv else []
    return ShownStage(stage, seconds, chain, _STAGE_ICONS.get(stage.status, "more_horiz"))


@admin.register(Stage)
class StageAdmin(PageAdmin):
    """Every step that ever ran or did not."""

    page_template = "pipelines/stage.html"
    empty_state = "Stages appear with the pipelines that make them."
    empty_icon = "linear_scale"
    list_display = (
        "show_name",
        "show_status",
        "pipeline",
        "exit_code",
        "started_at",
        "finished_at",
    )
    list_filter = ("status", "runner", "command")
    search_fields = ("command", "pipeline__id", "error")
    date_hierarchy = "started_at"
    list_select_related = ("pipeline",)

    @display(description="Stage", ordering="command")
    def show_name(self, stage: Stage) -> str:
        """Position and command."""
        return str(stage)

    @display(description="Status", ordering="status", label=STAGE_LABELS)
    def show_status(self, stage: Stage) -> str:
        """The status's word."""
        return stage.get_status_display()

    def page(self, request: HttpRequest, row: Stage) -> Mapping[str, object]:
        """The one step."""
        return {"stage": _shown(row)}
