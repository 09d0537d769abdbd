"""Calls that act once: the same key and body get the first answer, another body is refused.

What a call does has to be safe to begin again by itself (one draft per origin, one effect per
approval): a process that dies between act and answer leaves the row without one, and the next call
with that key does the same again and finds it done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

import rfc8785
from django.db import IntegrityError
from django.utils import timezone

from guards.exceptions import CountersignError, InvalidInput, KeyReused
from guards.models import ApiToken, IdempotentCall
from guards.services.units import unit_of_work
from guards.types import Subject

#: How long a key is remembered.
KEPT = timedelta(days=30)
#: Name of the header, and of the field in a refusal.
HEADER = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, and whether it is the first call's."""

    document: dict[str, Any]
    replayed: bool


def once(
    *,
    token: ApiToken,
    key: str,
    operation: str,
    arguments: Mapping[str, Any],
    act: Callable[[Subject], Mapping[str, Any]],
) -> Answered:
    """Do it, unless this key has its answer already.

    `act` gets the call as the origin of what it makes and returns a JSON document. A refusal is
    not remembered: the same key may be used again. KeyReused for another operation or other
    arguments; InvalidInput for a key that is none. Outside any transaction.
    """
    call, is_first = _call(token, _valid(key), operation, _digest(operation, arguments))
    if call.answer is not None:
        return Answered(call.answer, replayed=True)
    try:
        document = dict(act(Subject("guards.call", str(call.pk))))
    except CountersignError:
        if is_first:  # one that met it, or repeats it after a crash, forgets nothing of it
            IdempotentCall.objects.filter(pk=call.pk, answer__isnull=True).delete()
        raise
    if _keep(call, document):
        return Answered(document, replayed=False)
    return Answered(_first_answer(call) or document, replayed=True)


def forget_old() -> int:
    """Forget the keys that nobody repeats any more; how many there were."""
    gone, _ = IdempotentCall.objects.filter(created_at__lt=timezone.now() - KEPT).delete()
    return gone


def _call(token: ApiToken, key: str, operation: str, digest: str) -> tuple[IdempotentCall, bool]:
    """The call that this key names, and whether it is named here for the first time."""
    try:
        with unit_of_work():
            made = IdempotentCall.objects.create(
                token=token, key=key, operation=operation, request=digest
            )
            return made, True
    except IntegrityError:
        call = IdempotentCall.objects.filter(token=token, key=key).first()
        if call is None:
            raise
    if call.request != digest:
        raise KeyReused(field=HEADER)
    return call, False


def _keep(call: IdempotentCall, document: dict[str, Any]) -> bool:
    """Write down the first answer; False where there is one, or the key names another call now."""
    if IdempotentCall.objects.filter(pk=call.pk, answer__isnull=True).update(answer=document):
        return True
    call.answer = document
    try:
        with unit_of_work():
            call.save(force_insert=True)  # the first call was refused meanwhile, and forgotten
    except IntegrityError:
        return False
    return True


def _first_answer(call: IdempotentCall) -> dict[str, Any] | None:
    answer: dict[str, Any] | None = (
        IdempotentCall.objects.filter(pk=call.pk).values_list("answer", flat=True).first()
    )
    return answer


def _digest(operation: str, arguments: Mapping[str, Any]) -> str:
    document: dict[str, Any] = {"operation": operation, "arguments": dict(arguments)}
    try:
        return sha256(rfc8785.dumps(document)).hexdigest()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise InvalidInput(f"the body has no canonical form: {error}") from error


def _valid(key: str) -> str:
    if not key:
        raise InvalidInput(
            f"name this call by an {HEADER}: a call that is repeated with it acts once",
            field=HEADER,
        )
    if len(key) > 200 or not all("!" <= one <= "~" for one in key):
        raise InvalidInput("a key is 1 to 200 visible ASCII characters", field=HEADER)
    return key
