"""A call that acts is repeated safely: the first answer comes back, another body does not pass."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from guards.exceptions import InvalidInput, KeyReused, Refused
from guards.models import ApiToken, IdempotentCall
from guards.services import idempotency, tokens
from guards.types import Asker, Subject

pytestmark = pytest.mark.django_db

OPERATOR = Asker("operator", "ada")


class Act:
    """Counts how often it was done."""

    def __init__(self) -> None:
        self.origins: list[Subject] = []

    def __call__(self, origin: Subject) -> dict[str, Any]:
        self.origins.append(origin)
        return {"done": len(self.origins)}


@pytest.fixture
def token() -> ApiToken:
    made, _ = tokens.mint(label="agent", scopes=["contacts:read"], by=OPERATOR)
    return made


def once(token: ApiToken, act: Any, *, key: str = "k-1", **arguments: Any) -> idempotency.Answered:
    return idempotency.once(
        token=token, key=key, operation="write", arguments=arguments or {"text": "a"}, act=act
    )


@pytest.mark.fault("send-05")
def test_the_same_key_and_body_gets_the_first_answer(token: ApiToken) -> None:
    act = Act()
    assert once(token, act) == idempotency.Answered({"done": 1}, replayed=False)
    assert once(token, act) == idempotency.Answered({"done": 1}, replayed=True)
    assert once(token, act, key="k-2") == idempotency.Answered({"done": 2}, replayed=False)
    assert len(act.origins) == 2


def test_another_body_or_another_operation_is_refused(token: ApiToken) -> None:
    act = Act()
    once(token, act)
    with pytest.raises(KeyReused) as refused:
        once(token, act, text="b")
    assert (refused.value.status, refused.value.field) == (409, "Idempotency-Key")
    with pytest.raises(KeyReused):
        idempotency.once(
            token=token, key="k-1", operation="other", arguments={"text": "a"}, act=act
        )
    assert len(act.origins) == 1


def test_keys_are_a_tokens_own(token: ApiToken) -> None:
    other, _ = tokens.mint(label="other", scopes=["contacts:read"], by=OPERATOR)
    act = Act()
    once(token, act)
    assert once(other, act, text="b").replayed is False


def test_a_refusal_is_not_remembered(token: ApiToken) -> None:
    def refuse(_: Subject) -> dict[str, Any]:
        raise Refused("not now", rule="no-write")

    with pytest.raises(Refused):
        once(token, refuse)
    act = Act()
    assert once(token, act, text="something else").document == {"done": 1}


def test_a_call_that_died_before_its_answer_goes_on_as_the_same_origin(token: ApiToken) -> None:
    died: list[Subject] = []

    def die(origin: Subject) -> dict[str, Any]:
        died.append(origin)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once(token, die)
    act = Act()
    assert once(token, act).replayed is False
    assert act.origins == died


def test_of_two_that_cross_both_get_one_answer(token: ApiToken) -> None:
    inner: list[idempotency.Answered] = []
    act = Act()

    def meet(origin: Subject) -> dict[str, Any]:
        inner.append(once(token, act))
        return {"done": "late"}

    late = once(token, meet)
    assert late == idempotency.Answered({"done": 1}, replayed=True)
    assert inner == [idempotency.Answered({"done": 1}, replayed=False)]


def test_a_refusal_of_one_that_meets_another_forgets_nothing(token: ApiToken) -> None:
    act = Act()

    def refuse(_: Subject) -> dict[str, Any]:
        raise Refused("done by the other one", rule="no-write")

    def meet(origin: Subject) -> dict[str, Any]:
        with pytest.raises(Refused):
            once(token, refuse)
        return act(origin)

    assert once(token, meet) == idempotency.Answered({"done": 1}, replayed=False)
    assert once(token, act) == idempotency.Answered({"done": 1}, replayed=True)
    assert len(act.origins) == 1


def test_an_answer_is_kept_where_the_first_call_was_refused_meanwhile(token: ApiToken) -> None:
    act = Act()

    def late(_: Subject) -> dict[str, Any]:
        def meet(origin: Subject) -> dict[str, Any]:
            IdempotentCall.objects.all().delete()  # what the refusal of the first one does
            return act(origin)

        assert once(token, meet) == idempotency.Answered({"done": 1}, replayed=False)
        raise Refused("too late", rule="no-write")

    with pytest.raises(Refused):
        once(token, late)
    assert once(token, act) == idempotency.Answered({"done": 1}, replayed=True)
    assert len(act.origins) == 1


@pytest.mark.one_database
@pytest.mark.parametrize("key", ["", " ", "a b", "ü", "a\n", "a\0", "x" * 201])
def test_a_key_that_is_none_is_refused(token: ApiToken, key: str) -> None:
    act = Act()
    with pytest.raises(InvalidInput) as refused:
        once(token, act, key=key)
    assert refused.value.field == "Idempotency-Key"
    assert act.origins == []


def test_old_keys_are_forgotten_and_young_ones_kept(token: ApiToken) -> None:
    once(token, Act(), key="old")
    once(token, Act(), key="young")
    past = timezone.now() - idempotency.KEPT - timedelta(days=1)
    IdempotentCall.objects.filter(key="old").update(created_at=past)
    assert idempotency.forget_old() == 1
    assert [call.key for call in IdempotentCall.objects.all()] == ["young"]
