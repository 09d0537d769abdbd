"""docs/names.md: states, rules, reasons, events, errors, scopes and tools, as code names them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator

from django.apps import apps
from django.db.models import TextChoices

from guards import registry as guards_registry
from guards import types as guards_types
from guards.exceptions import CountersignError
from guards.fronts import mcp
from guards.openpgp import EncryptionRefusal
from mail import types as mail_types
from mail.gmail import reasons as gmail_reasons
from pipelines import types as pipelines_types
from teams import registry as teams_registry

_HEAD = """# Names

States, rules, reasons, events and errors are stable strings: stored, shown, and given by the API.
This page is generated from the code by `make docs`.
"""

_CLOSED_LISTS = (
    *(getattr(guards_types, name) for name in ("TrustLevel", "TrustReason", "ProviderHeaders")),
    *(getattr(guards_types, name) for name in ("Action", "Verdict", "Rule", "Refusal")),
    *(getattr(mail_types, name) for name in ("Provider", "LoopReason", "SendReason")),
    *(getattr(mail_types, name) for name in ("Verb", "OrderFault", "AnswerReason")),
    EncryptionRefusal,
    gmail_reasons.Reason,
    *(getattr(pipelines_types, name) for name in ("PlanRule", "RunRule", "ResumeRule", "FileRule")),
)
_APPS = ("guards", "approvals", "teams", "mail", "pipelines")


def page() -> str:
    """The page as it should be."""
    _import_everything()
    parts = [_HEAD, "## Closed lists\n", _closed_lists()]
    parts += ["## States\n", _states(), "## Events\n", _events()]
    parts += ["## Errors\n", _errors(), "## Scopes of API tokens\n", _scopes()]
    parts += ["## Tools over MCP\n", _tools()]
    return "\n".join(parts).rstrip() + "\n"


def _import_everything() -> None:
    """An error counts where it is defined, whether or not anybody imported its module yet."""
    for app in _APPS:
        package = importlib.import_module(app)
        for module in pkgutil.walk_packages(package.__path__, f"{app}."):
            importlib.import_module(module.name)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(c) for c in line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "/")


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().split("\n\n")[0]


def _closed_lists() -> str:
    rows = []
    for kind in _CLOSED_LISTS:
        names = ", ".join(f"`{member.value}`" for member in kind)
        rows.append((kind.__name__, _first_line(kind), names))
    return _table(("list", "what it says", "names"), rows)


def _states() -> str:
    return _table(("model", "list", "names"), sorted(_choices()))


def _choices() -> Iterator[tuple[str, str, str]]:
    for model in apps.get_models():
        if model._meta.app_label not in _APPS:
            continue
        for name, kind in vars(model).items():
            if isinstance(kind, type) and issubclass(kind, TextChoices):
                names = ", ".join(f"`{value}`" for value in kind.values)
                yield model._meta.label, name, names


def _events() -> str:
    kinds = teams_registry.event_kinds()
    return _table(("kind", "app", "meaning"), ((f"`{k.name}`", k.app, k.meaning) for k in kinds))


def _errors() -> str:
    rows = {
        (kind.code, str(kind.status), "yes" if kind.permanent else "no", _first_line(kind))
        for kind in _all_errors(CountersignError)
    }
    return _table(
        ("code", "HTTP", "permanent", "sentence"),
        ((f"`{code}`", *rest) for code, *rest in sorted(rows)),
    )


def _all_errors(kind: type[CountersignError]) -> Iterator[type[CountersignError]]:
    if kind.__module__.split(".")[0] in _APPS and not kind.__name__.startswith("_"):
        yield kind
    for below in kind.__subclasses__():
        yield from _all_errors(below)


def _scopes() -> str:
    rows = sorted(guards_registry.scopes().items())
    return _table(("scope", "what it opens"), ((f"`{name}`", text) for name, text in rows))


def _tools() -> str:
    mcp.discover()
    rows = (
        (f"`{tool.name}`", f"`{tool.scope}`" if tool.scope else "none", _arguments(tool))
        for tool in mcp.tools()
    )
    return _table(("tool", "scope", "arguments"), rows)


def _arguments(tool: mcp.Tool) -> str:
    schema = mcp.input_schema(tool)
    required = schema.get("required", [])
    names = (f"`{name}`" if name in required else f"[`{name}`]" for name in schema["properties"])
    return ", ".join(names)
