"""Who may change what: agents look and add, the operator grants (guards.md, W11)."""

from __future__ import annotations

from guards.exceptions import Refused
from guards.models import ApiToken, Identity
from guards.types import Asker, Refusal


def require_operator(*, by: Asker, act: str) -> None:
    """Refuse everybody but the operator; `act` completes the sentence "only the operator may …"."""
    if not by.may_change_rights:
        raise Refused(f"only the operator may {act}", rule=Refusal.OPERATOR_ONLY)


def own_identity(*, by: Asker) -> Identity | None:
    """The identity that an agent's asker stands for; None for the operator and for strangers."""
    if by.kind == "identity":
        return Identity.objects.filter(handle=by.name).first()
    if by.kind == "token":
        token = ApiToken.objects.filter(prefix=by.name).select_related("identity").first()
        return token.identity if token else None
    return None
