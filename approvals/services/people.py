"""Who may say yes or no: a person, in a session or by an own token. Never an agent, never us."""

from __future__ import annotations

import re

from approvals.exceptions import NotAPerson, OwnAct
from approvals.models import Approval
from guards.exceptions import InvalidInput
from guards.models import ApiToken, Identity
from guards.types import Asker

#: Which asker answers through which channel.
_CHANNELS = {
    str(Approval.Via.CONSOLE): "operator",
    str(Approval.Via.TOKEN): "token",
    str(Approval.Via.MAIL): "owner",
}

#: The owner where no signature of his was seen: mail that says it is from him. It carries only no.
REPORTED_OWNER = Asker("owner", "reported")

_FINGERPRINT = re.compile(r"[0-9A-F]{40}")


def signed_owner(fingerprint: str) -> Asker:
    """The owner, by the key whose signature was verified just now."""
    return Asker("owner", fingerprint)


def require_person(by: Asker) -> None:
    """An operator, a token that belongs to a person, or the owner by a key that signed.

    NotAPerson says what else it was.
    """
    if by.kind == "operator" and by.name:
        return
    if by.kind == "owner" and _FINGERPRINT.fullmatch(by.name):
        return
    if by.kind == "token" and _belongs_to_a_person(by.name):
        return
    raise NotAPerson(f"{by} is no person: open and answer it in the console", rule="not-a-person")


def require_stopper(by: Asker) -> None:
    """Who may stop something or say no: a person, or mail that says it is from the owner."""
    if by != REPORTED_OWNER:
        require_person(by)


def require_answerer(*, by: Asker, via: str, requested_by: str, yes: bool = True) -> None:
    """A person, through a channel that carries a yes; an agent never answers for its own act.

    A no (`yes=False`) may also come from an owner of whom no signature was seen.
    """
    if by.kind != "operator" and str(by) == requested_by:
        raise OwnAct(f"{by} asked for this itself", rule="own-act")
    if _CHANNELS.get(via) != by.kind:
        raise InvalidInput(
            f"{by} cannot answer through {via!r}: an operator answers in the console, a person's "
            "token through the API, the owner by signed mail",
            field="via",
        )
    if yes:
        require_person(by)
    else:
        require_stopper(by)


def _belongs_to_a_person(prefix: str) -> bool:
    return ApiToken.objects.filter(
        prefix=prefix, revoked_at=None, identity__kind=Identity.Kind.HUMAN
    ).exists()
