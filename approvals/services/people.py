"""Who may say yes or no: a person, in a session or by an own token. Never an agent, never us."""

from __future__ import annotations

from approvals.exceptions import NotAPerson, OwnAct
from approvals.models import Approval
from guards.exceptions import InvalidInput
from guards.models import ApiToken, Identity
from guards.types import Asker

#: Which asker answers through which channel. Signed mail comes with its own issue.
_CHANNELS = {str(Approval.Via.CONSOLE): "operator", str(Approval.Via.TOKEN): "token"}


def require_person(by: Asker) -> None:
    """An operator, or a token that belongs to a person; NotAPerson says what else it was."""
    if by.kind == "operator" and by.name:
        return
    if by.kind == "token" and _belongs_to_a_person(by.name):
        return
    raise NotAPerson(f"{by} is no person: open and answer it in the console", rule="not-a-person")


def require_answerer(*, by: Asker, via: str, requested_by: str) -> None:
    """A person, through a channel that carries a yes; an agent never answers for its own act."""
    if by.kind != "operator" and str(by) == requested_by:
        raise OwnAct(f"{by} asked for this itself", rule="own-act")
    if _CHANNELS.get(via) != by.kind:
        raise InvalidInput(
            f"{by} cannot answer through {via!r}: an operator answers in the console, a person's "
            "token through the API",
            field="via",
        )
    require_person(by)


def _belongs_to_a_person(prefix: str) -> bool:
    return ApiToken.objects.filter(
        prefix=prefix, revoked_at=None, identity__kind=Identity.Kind.HUMAN
    ).exists()
