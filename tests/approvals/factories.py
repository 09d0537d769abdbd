"""What tests of approvals begin with."""

from __future__ import annotations

from itertools import count

from approvals.models import Approval, Effect, Hold
from approvals.services import approvals, holds
from approvals.types import Request
from guards.types import Action, Asker, Judgement, Rule, Subject, Verdict

OPERATOR = Asker("operator", "ada")
AGENT = Asker("identity", "bot")
ALLOWED = Judgement(Action.REPLY, Verdict.ALLOW, Rule.WRITE_PERMITTED)

_numbers = count(1)


def request(kind: str = "tests.counting", **changes: object) -> Request:
    """A wish of an agent to answer a source of its own."""
    number = next(_numbers)
    values: dict[str, object] = {
        "kind": kind,
        "subject": Subject("mail.outbound", f"out-{number}"),
        "requested_by": AGENT,
        "source": Subject("mail.message", f"in-{number}"),
        "account": Subject("mail.account", "1"),
        **changes,
    }
    return Request(**values)  # type: ignore[arg-type]


def held(**changes: object) -> Hold:
    """A draft that waits."""
    return holds.hold(request=request(**changes), reason="the reply policy asks a person")


def opened(**changes: object) -> Approval:
    """A draft that an operator has before him."""
    return holds.open_for_review(hold_id=held(**changes).pk, by=OPERATOR)


def approve(approval: Approval) -> Effect:
    """The operator's yes to what he saw."""
    return approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
    )


def intent(**changes: object) -> Effect:
    """A yes that nobody has dispatched yet."""
    return approve(opened(**changes))
