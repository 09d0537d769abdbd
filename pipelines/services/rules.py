"""Planning rules: who wrote, what the executable text says, which commands follow.

A rule reads the executable text and nothing else: never a header, a quote, or what is not signed.
Words are plain words that must all occur; expressions run on RE2, whose time grows with the text
only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

import re2
import structlog
from django.db.models import F
from django.utils import timezone

from guards import selectors as guards
from guards.exceptions import CountersignError, NotFound
from guards.models import Identity
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from pipelines import pipes, specification
from pipelines.exceptions import DocumentInvalid, RuleInvalid
from pipelines.models import Command, Rule, RuleHit
from pipelines.types import CommandCall, Plan, PlanningRequest
from teams.services import events

log = structlog.get_logger(__name__)

#: The longest expression, and the most memory that one may take.
MAX_MATCH_LENGTH = 2_000
_MAX_EXPRESSION_BYTES = 1 << 20

_NAME = re.compile(r"\A[a-z0-9][a-z0-9_-]{0,63}\Z")
_WORD = re.compile(r"\A[\w-]+\Z")
_CALL_KEYS = frozenset({"command", "args"})
_GROUP_KEYS = frozenset({"group", "type"})
_GROUP_TYPES = ["string", "integer", "number", "boolean"]
_INTEGER = re.compile(r"\A-?(?:0|[1-9][0-9]{0,17})\Z")
_NUMBER = re.compile(r"\A-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?\Z")


class RulePlanner:
    """Plans by the first rule that matches, in the operator's order (DES-028)."""

    name = "rule"

    def plan(self, request: PlanningRequest) -> Plan | None:
        """The calls of the first active rule that matches, or None."""
        for rule in Rule.objects.filter(is_active=True).order_by("position", "id"):
            try:
                calls = calls_of(rule, request)
            except (CountersignError, re2.error) as error:
                log.error(
                    "a rule cannot be read, and plans nothing", rule=rule.name, why=str(error)
                )
                continue
            if calls is not None:
                return Plan(f"rule:{rule.name}", calls)
        return None


def calls_of(rule: Rule, request: PlanningRequest) -> tuple[CommandCall, ...] | None:
    """What one rule makes of a request: calls with extracted arguments, or None for no match.

    RuleInvalid, InvalidInput or re2.error for a row that was written past us.
    """
    if rule.identity_id is not None and rule.identity_id != request.identity_id:
        return None
    if rule.sender and not guards.address_matches(rule.sender, request.sender):
        return None
    groups = _match(rule.kind, rule.match, request.text)
    if groups is None:
        return None
    _check_calls(rule.calls, _groups_of(rule.kind, rule.match))
    return tuple(
        CommandCall(call["command"], _extracted(call.get("args", {}), groups))
        for call in rule.calls
    )


def save_rule(
    *,
    name: str,
    match: str,
    calls: Sequence[Mapping[str, Any]],
    by: Asker,
    kind: str = Rule.Kind.WORDS,
    sender: str = "",
    identity: Identity | None = None,
    position: int = 100,
    is_active: bool = True,
) -> Rule:
    """Write a rule, new or changed; RuleInvalid names the field and what is wrong with it.

    A call is `{"command": NAME, "args": {ARGUMENT: value}}`; the value `{"group": G}` takes what
    the expression's named group matched, as text, or as `"type": "integer" | "number" |
    "boolean"`.
    """
    check_rule(name=name, match=match, calls=calls, kind=kind, sender=sender)
    values = {
        "match": match,
        "calls": [dict(call) for call in calls],
        "kind": kind,
        "sender": sender.lower(),
        "identity": identity,
        "position": position,
        "is_active": is_active,
    }
    with unit_of_work():
        rule, _ = Rule.objects.update_or_create(name=name, defaults=values)
        _note("rule.saved", rule, by)
    return rule


def remove_rule(*, name: str, by: Asker) -> None:
    """Take a rule away; NotFound when there is none of that name."""
    with unit_of_work():
        rule = Rule.objects.filter(name=name).first()
        if rule is None:
            raise NotFound(f"there is no rule {name}", field="name")
        _note("rule.removed", rule, by)
        rule.delete()


def count_hit(*, name: str) -> None:
    """One more message was planned by this rule, today."""
    now = timezone.now()
    Rule.objects.filter(name=name).update(hits=F("hits") + 1, last_hit_at=now)
    day = RuleHit.objects.filter(rule__name=name, day=now.astimezone(UTC).date())
    if day.update(hits=F("hits") + 1):
        return
    fresh = [
        RuleHit(rule=rule, day=now.astimezone(UTC).date())
        for rule in Rule.objects.filter(name=name)
    ]
    RuleHit.objects.bulk_create(fresh, ignore_conflicts=True)
    day.update(hits=F("hits") + 1)


def _note(kind: str, rule: Rule, by: Asker) -> None:
    named = [call.get("command") for call in rule.calls or () if isinstance(call, Mapping)]
    events.append_event(
        kind=kind,
        subject=Subject("pipelines.rule", str(rule.pk)),
        actor=str(by),
        facts={"name": rule.name, "commands": named},
    )


def _match(kind: str, match: str, text: str) -> dict[str, str] | None:
    """The named groups of a match (none for words), or None."""
    if kind == Rule.Kind.WORDS:
        present = set(re.findall(r"[\w-]+", text.casefold()))
        return {} if all(word in present for word in match.casefold().split()) else None
    found = _expression(match).search(text)
    if found is None:
        return None
    return {name: value for name, value in found.groupdict().items() if value is not None}


def _expression(match: str) -> re2.Pattern:
    options = re2.Options()
    options.max_mem = _MAX_EXPRESSION_BYTES
    options.log_errors = False
    return re2.compile(match, options)


def _extracted(args: Mapping[str, Any], groups: Mapping[str, str]) -> dict[str, Any]:
    """A call's arguments: what the rule says, or what a group matched; absent ones are left out."""
    found: dict[str, Any] = {}
    for name, value in args.items():
        if not _is_group(value):
            found[name] = value
        elif value["group"] in groups:
            found[name] = _typed(groups[value["group"]], value.get("type", "string"))
    return found


def _is_group(value: Any) -> bool:
    return isinstance(value, Mapping) and "group" in value


def _typed(text: str, wanted: str) -> Any:
    """The text as the wanted type where it is written exactly so; else the text, which fails."""
    if wanted == "integer" and _INTEGER.match(text):
        return int(text)
    if wanted == "number" and _NUMBER.match(text):
        return float(text) if "." in text else int(text)
    if wanted == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def check_rule(*, name: str, match: str, calls: Any, kind: str, sender: str) -> None:
    """RuleInvalid unless a rule could be saved so; names the field and what is wrong with it."""
    if not _NAME.match(name):
        raise RuleInvalid("a rule's name has small letters, digits, - and _", field="name")
    if kind not in Rule.Kind.values:
        raise RuleInvalid(f"{kind!r} is neither words nor regex", field="kind")
    if not match.strip() or len(match) > MAX_MATCH_LENGTH:
        raise RuleInvalid(f"has between 1 and {MAX_MATCH_LENGTH} characters", field="match")
    if kind == Rule.Kind.WORDS and not all(_WORD.match(word) for word in match.split()):
        raise RuleInvalid("plain words hold letters, digits, _ and - only", field="match")
    if sender:
        try:
            guards.check_pattern(sender)
        except CountersignError as error:
            raise RuleInvalid(error.detail, field="sender") from error
    _check_calls(calls, _groups_of(kind, match))


def unmet_calls(*, calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is missing for these calls now: commands that are not there, arguments that do not fit.

    It refuses nothing, since a rule may be written before its commands are loaded, and it trusts
    no row: whatever is planned is checked again, with its signature.
    """
    found: list[str] = []
    for call in calls:
        name, given = call["command"], call.get("args", {})
        command = Command.objects.filter(name=name).first()
        if command is None:
            found += [] if name in specification.BUILT_IN else [f"there is no command {name!r}"]
            continue
        try:
            spec = specification.read(command.document)
        except DocumentInvalid as error:
            found.append(f"{name}: {error.detail}")
            continue
        found += [f"{name} has no argument {key!r}" for key in given if not spec.argument(key)]
        found += [
            f"{name} needs the argument {argument.name!r}"
            for argument in spec.arguments
            if argument.required and argument.from_pipe is None and argument.name not in given
        ]
    return found


def _groups_of(kind: str, match: str) -> frozenset[str]:
    if kind == Rule.Kind.WORDS:
        return frozenset()
    try:
        return frozenset(_expression(match).groupindex)
    except re2.error as error:
        raise RuleInvalid(f"is no RE2 expression: {_words(error)}", field="match") from error


def _words(error: re2.error) -> str:
    """What the library says, which comes as bytes."""
    said = error.args[0] if error.args else ""
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)


def _check_calls(calls: Any, groups: frozenset[str]) -> None:
    if not isinstance(calls, list | tuple) or not calls:
        raise RuleInvalid("is a list of at least one call", field="calls")
    try:
        pipes.check_storable(list(calls))
    except ValueError as error:
        raise RuleInvalid(str(error), field="calls") from error
    for index, call in enumerate(calls):
        place = f"calls[{index}]"
        if not isinstance(call, Mapping) or not isinstance(call.get("command"), str):
            raise RuleInvalid('is {"command": NAME, "args": {…}}', field=place)
        if not set(call) <= _CALL_KEYS:
            raise RuleInvalid(f"unknown key {min(set(call) - _CALL_KEYS)!r}", field=place)
        _check_call_args(call.get("args", {}), groups, place)


def _check_call_args(args: Any, groups: frozenset[str], place: str) -> None:
    if not isinstance(args, Mapping):
        raise RuleInvalid("is a mapping of names to values", field=f"{place}.args")
    for name, value in args.items():
        if not _is_group(value):
            continue
        if not set(value) <= _GROUP_KEYS or value["group"] not in list(groups):
            raise RuleInvalid(
                f"the expression has no group {value['group']!r}", field=f"{place}.args.{name}"
            )
        if value.get("type", "string") not in _GROUP_TYPES:
            raise RuleInvalid(
                f"a group is taken as {', '.join(_GROUP_TYPES)}", field=f"{place}.args.{name}"
            )
