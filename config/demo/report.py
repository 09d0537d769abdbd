"""What came out of the story, counted from the records and at the server, beside what was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from config.demo.world import World
from config.embedded_mail import read_journal
from guards.types import Rule, TrustLevel
from mail.models import Message, Outbound
from pipelines.models import Pipeline
from teams.services import verification

#: Rules that are no answer to a message that came in, or to none that comes in here: the demo's
#: owner answers in the console.
_NOT_OF_MESSAGES = frozenset(
    {Rule.OPERATOR_OVERRIDE, Rule.OWN_MAILBOX, Rule.OWNER_NOTICE, Rule.OWNER_ANSWER}
)

TRUST = {"trusted": 1, "verified": 3, "unverified": 2, "untrusted": 1}
DECISIONS = {"execute-permitted": 2, "read-permitted": 2, "no-permission": 1, "trust-too-low": 2}


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker that died on purpose: where, and what its send looked like before and after."""

    point: str
    phase: str
    smtp_accepted: int

    def as_json(self) -> dict[str, object]:
        """The `crash` object of the report."""
        return {"point": self.point, "phase": self.phase, "smtp_accepted": self.smtp_accepted}


@dataclass(slots=True)
class Told:
    """What the performance saw on its way."""

    waiting_seen: int = 0
    approved: int = 0
    crash: Crash | None = None
    failures: list[str] = field(default_factory=list)


def accepted_at_server(world: World, message_id: str) -> int:
    """How often the server took a message with this Message-ID."""
    return sum(line["message_id"] == message_id for line in read_journal(world.journal))


def report(world: World, told: Told, seconds: float) -> dict[str, Any]:
    """The object that `demo --json` prints."""
    log = verification.verify()
    answer: dict[str, Any] = {
        "schema": "demo/1",
        "ok": False,
        "failures": [],
        "seconds": round(seconds, 1),
        "trust": _counted((level.value for level in TrustLevel), _column("trust_level")),
        "decisions": _counted(
            (rule.value for rule in Rule if rule not in _NOT_OF_MESSAGES), _column("rule")
        ),
        "pipelines": _counted(
            Pipeline.Status.values, Pipeline.objects.values_list("status", flat=True)
        ),
        "approvals": {"waiting_seen": told.waiting_seen, "approved": told.approved},
        "replies": [_reply(world, row) for row in Outbound.objects.order_by("created_at")],
        "events": log.events,
        "log_verified": log.ok,
        "crash": told.crash.as_json() if told.crash else None,
    }
    answer["failures"] = [*told.failures, *_failures(answer)]
    answer["ok"] = not answer["failures"]
    return answer


def _column(name: str) -> Iterable[str]:
    return Message.objects.values_list(name, flat=True)


def _counted(names: Iterable[str], values: Iterable[str]) -> dict[str, int]:
    counts = Counter(values)
    return {name: counts[name] for name in names}


def _reply(world: World, row: Outbound) -> dict[str, object]:
    message_id = row.message_id.strip("<>")
    return {
        "message_id": message_id,
        "to": ", ".join(row.to),
        "held": row.hold_id is not None,
        "phase": row.effect.phase if row.effect else None,
        "smtp_accepted": accepted_at_server(world, message_id),
    }


def _failures(answer: Mapping[str, Any]) -> list[str]:
    """One sentence for each figure that is not as told."""
    crashed = answer["crash"] is not None
    done = {"completed": 1, "interrupted": 1} if crashed else {"completed": 2}
    wanted: dict[str, tuple[object, object]] = {
        "trust": (answer["trust"], TRUST),
        "decisions": (_without_zeros(answer["decisions"]), DECISIONS),
        "pipelines": (_without_zeros(answer["pipelines"]), done),
        "approvals": (answer["approvals"], {"waiting_seen": 1, "approved": 1}),
        "replies": (_outcomes(answer["replies"]), _expected_outcomes(answer["crash"])),
        "log_verified": (answer["log_verified"], True),
    }
    return [f"{name} is {got}, not {want}" for name, (got, want) in wanted.items() if got != want]


def _without_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _outcomes(replies: Iterable[Mapping[str, Any]]) -> list[tuple[bool, str, int]]:
    return sorted((r["held"], str(r["phase"]), r["smtp_accepted"]) for r in replies)


def _expected_outcomes(crash: Mapping[str, Any] | None) -> list[tuple[bool, str, int]]:
    held = (True, "accepted", 1)
    if crash is None:
        return [(False, "accepted", 1), held]
    return [(False, "unknown", 1 if crash["point"] == "after-data" else 0), held]
