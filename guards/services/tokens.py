"""API tokens: shown once, kept as a hash, scoped, revocable at once."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from guards import registry, storable
from guards.exceptions import AlreadyDecided, InvalidInput, NotAuthenticated, Refused
from guards.models import ApiToken, Identity
from guards.services.authority import require_operator
from guards.services.units import unit_of_work
from guards.signals import token_changed
from guards.types import SYSTEM, Asker, Refusal, Subject

#: A token reads `cs_<8 hex>_<43 characters>`: the part before the second `_` is shown in lists.
_MARK = "cs_"

#: `last_used_at` is written at most this often, so that reading the API does not write each time.
_USE_GRAIN = timedelta(minutes=1)


def mint(
    *,
    label: str,
    scopes: Iterable[str],
    identity: Identity | None = None,
    project: str = "",
    expires_at: datetime | None = None,
    by: Asker,
) -> tuple[ApiToken, str]:
    """Make a token; the second value is the secret, which nobody can show again. Operator only.

    InvalidInput for an empty label, no scope, an unregistered scope or an expiry in the past.
    Refused (`not-a-person`) for a scope of people without a human identity.
    Announces `token_changed` (`minted`).
    """
    require_operator(by=by, act="mint a token")
    return _make(
        label=label,
        scopes=scopes,
        expires_at=expires_at,
        by=by,
        identity=identity,
        project=storable.line(project, field="project", most=64),
    )


def mint_for(
    *,
    holder: Subject,
    label: str,
    scopes: Iterable[str],
    identity: Identity | None,
    expires_at: datetime,
    by: Asker,
    secret: str = "",
) -> tuple[ApiToken, str]:
    """Make a token that belongs to a row, such as a mission, and counts for that row only.

    The program alone makes such tokens, always with an expiry; `revoke_for` ends them with their
    row. One that has a holder reads no mail, contact or decision of its identity, which only says
    whose switch turns it off. The second value is the secret: a new one, or what `new_secret` gave.
    Announces `token_changed`.
    """
    _require_system(by=by, act="mint a token for a row")
    if not holder.type or not holder.id:
        raise InvalidInput("name the row that holds the token", field="holder")
    return _make(
        label=label,
        scopes=scopes,
        expires_at=expires_at,
        by=by,
        identity=identity,
        holder_type=holder.type,
        holder_id=holder.id,
        secret=secret,
    )


def new_secret() -> str:
    """The secret of a token that is not made yet: until `mint_for` makes it, it opens nothing."""
    return f"{_MARK}{secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"


def _make(
    *,
    label: str,
    scopes: Iterable[str],
    expires_at: datetime | None,
    by: Asker,
    secret: str = "",
    **belongs: Any,
) -> tuple[ApiToken, str]:
    wanted = sorted(set(scopes))
    named = storable.line(label, field="label", most=200)
    _check(named, wanted, expires_at)
    _require_person_for(wanted, belongs.get("identity"), holder=belongs.get("holder_type", ""))
    secret = secret or new_secret()
    prefix = "_".join(secret.split("_")[:2])
    with unit_of_work():
        token = ApiToken.objects.create(
            prefix=prefix,
            digest=_digest(secret),
            label=named,
            scopes=wanted,
            created_by=str(by),
            expires_at=expires_at,
            **belongs,
        )
        token_changed.send(sender=ApiToken, token=token, change="minted")
    return token, secret


def revoke(*, token: ApiToken, by: Asker) -> ApiToken:
    """End a token now. AlreadyDecided when that was done before. Announces `token_changed`."""
    require_operator(by=by, act="revoke a token")
    with unit_of_work():
        if not _end(token):
            raise AlreadyDecided(f"token {token.prefix} was revoked before")
    return token


def revoke_for(*, holder: Subject) -> int:
    """End every token of a row now; how many counted until then. Announces each."""
    with unit_of_work():
        living = ApiToken.objects.filter(
            holder_type=holder.type, holder_id=holder.id, revoked_at=None
        )
        return sum(_end(token) for token in list(living))


def _end(token: ApiToken) -> bool:
    now = timezone.now()
    moved = ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now)
    if moved:
        token.revoked_at = now
        token_changed.send(sender=ApiToken, token=token, change="revoked")
    return bool(moved)


def authenticate(secret: str, *, notes_use: bool = True) -> ApiToken:
    """The token of this secret, if it counts now; NotAuthenticated names the rule if it does not.

    Looks up by the hash of 256 random bits, so comparing takes the same time for every guess.
    Whoever asks for it without `notes_use` calls `note_use` when the answer is given.
    """
    found = ApiToken.objects.select_related("identity").filter(digest=_digest(secret)).order_by()
    token = next(iter(found), None)
    if token is None:
        raise NotAuthenticated("this token is not known here", rule=Refusal.TOKEN_UNKNOWN)
    require_valid(token)
    if notes_use:
        note_use(token)
    return token


def is_use_due(token: ApiToken) -> bool:
    """Whether the time of its last use is to be written: it was not, within the last minute."""
    return token.last_used_at is None or token.last_used_at < timezone.now() - _USE_GRAIN


def note_use(token: ApiToken) -> None:
    """Write that it was used, where that is due."""
    if not is_use_due(token):
        return
    now = timezone.now()
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - _USE_GRAIN)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)


def require_valid(token: ApiToken) -> None:
    """Refuse a revoked or expired token, or one of an identity that is switched off."""
    if token.revoked_at is not None:
        raise NotAuthenticated("this token was revoked", rule=Refusal.TOKEN_REVOKED)
    if token.expires_at is not None and token.expires_at <= timezone.now():
        raise NotAuthenticated(
            f"this token expired on {token.expires_at:%Y-%m-%d}", rule=Refusal.TOKEN_EXPIRED
        )
    if token.identity is not None and not token.identity.is_active:
        raise NotAuthenticated(
            f"identity {token.identity.handle} is switched off", rule=Refusal.TOKEN_REVOKED
        )


def require_holder(token: ApiToken, *, holder: Subject) -> None:
    """Refuse a token that does not belong to exactly this row."""
    if (token.holder_type, token.holder_id) != (holder.type, holder.id):
        raise Refused(f"this token does not belong to {holder}", rule=Refusal.OTHER_HOLDER)


def _require_system(*, by: Asker, act: str) -> None:
    if by != SYSTEM:
        raise Refused(f"only the program itself may {act}", rule=Refusal.SYSTEM_ONLY)


def _check(label: str, scopes: list[str], expires_at: datetime | None) -> None:
    if not label:
        raise InvalidInput("a token needs a label that says who holds it", field="label")
    if not scopes:
        raise InvalidInput("a token needs at least one scope", field="scopes")
    known = registry.scopes()
    unknown = [scope for scope in scopes if scope not in known]
    if unknown:
        raise InvalidInput(
            f"there is no scope {unknown[0]!r}: choose from {', '.join(sorted(known))}",
            field="scopes",
        )
    if expires_at is not None and expires_at <= timezone.now():
        raise InvalidInput("the expiry lies in the past", field="expires_at")


def _require_person_for(scopes: list[str], identity: Identity | None, *, holder: str) -> None:
    """What only a person may do is in no token of an agent, of a row, or of nobody."""
    of_people = sorted(registry.scopes_of_people().intersection(scopes))
    is_a_persons = identity is not None and identity.kind == Identity.Kind.HUMAN and not holder
    if of_people and not is_a_persons:
        whose = f"{identity.handle} is none" if identity is not None else "name the person"
        raise Refused(
            f"{of_people[0]} is for the token of a person, of an identity of the kind Human: "
            f"{whose}",
            rule=Refusal.NOT_A_PERSON,
            field="scopes" if identity is not None else "identity",
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
