"""A permission: one use of exactly what a person said yes to, and never an effect."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from approvals import registry
from approvals.exceptions import (
    ApprovalExpired,
    ApprovalSuperseded,
    DigestMismatch,
    NotAPerson,
    UnknownKind,
)
from approvals.models import Approval, Effect, Hold
from approvals.services import approvals, effects, permissions
from approvals.types import Frozen
from guards.exceptions import AlreadyDecided
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from tests.approvals.factories import ALLOWED, OPERATOR, held, opened, request
from tests.approvals.kinds import CountingKind, GateKind

pytestmark = pytest.mark.django_db


@pytest.fixture
def gate() -> Iterator[GateKind]:
    kind = GateKind()
    registry.register_permission(kind)
    yield kind
    registry.forget_kind(kind.name)


def permit(approval: Approval, **changes: object) -> Approval:
    answer: dict[str, object] = {"by": OPERATOR, "via": "console", "digest": approval.digest}
    return permissions.permit(approval_id=approval.pk, **{**answer, **changes})  # type: ignore[arg-type]


def use_of(approval: Approval, gate: GateKind) -> Frozen:
    return gate.freeze(Subject(approval.subject_type, approval.subject_id))


def test_it_is_used_once_and_becomes_no_effect(gate: GateKind) -> None:
    approval = opened(kind=gate.name)
    use = use_of(approval, gate)

    permit(approval)

    assert [permissions.consume(approval_id=approval.pk, use=use) for _ in range(3)] == [
        True,
        False,
        False,
    ]
    approval.refresh_from_db()
    assert (approval.state, approval.decided_by) == ("consumed", str(OPERATOR))
    assert approval.hold is not None and approval.hold.state == Hold.State.ALLOWED
    assert not Effect.objects.exists()


@pytest.mark.one_database
def test_nothing_is_used_before_a_person_has_said_yes(gate: GateKind) -> None:
    approval = opened(kind=gate.name)

    assert not permissions.consume(approval_id=approval.pk, use=use_of(approval, gate))
    with pytest.raises(NotAPerson):
        permit(approval, by=Asker("token", "of-an-agent"), via="token")


@pytest.mark.one_database
def test_a_second_click_changes_nothing(gate: GateKind) -> None:
    approval = opened(kind=gate.name)

    first, second = permit(approval), permit(approval)

    assert first.decided_at == second.decided_at
    assert second.state == Approval.State.APPROVED


@pytest.mark.one_database
@pytest.mark.invariant(18)
def test_a_use_that_differs_by_one_byte_or_one_fact_is_another(gate: GateKind) -> None:
    approval = permit(opened(kind=gate.name))
    use = use_of(approval, gate)
    others = (
        Frozen(use.payload + b" ", use.facts, use.preview),
        Frozen(use.payload, {**use.facts, "who": "somebody else"}, use.preview),
    )

    assert not any(permissions.consume(approval_id=approval.pk, use=other) for other in others)
    assert permissions.consume(approval_id=approval.pk, use=use)


@pytest.mark.one_database
def test_the_yes_is_to_what_the_page_showed(gate: GateKind) -> None:
    approval = opened(kind=gate.name)

    with pytest.raises(DigestMismatch):
        permit(approval, digest="0" * 64)


@pytest.mark.one_database
def test_it_stays_valid_as_long_as_its_kind_says(gate: GateKind, kind: CountingKind) -> None:
    seven_days, five_minutes = opened(kind=gate.name), opened(kind=kind.name)

    assert seven_days.expires_at - seven_days.created_at == timedelta(days=7)
    assert five_minutes.expires_at - five_minutes.created_at == timedelta(minutes=5)


def test_a_yes_that_nobody_used_in_time_is_over(gate: GateKind) -> None:
    gate.validity = timedelta(0)
    late = opened(kind=gate.name)
    with pytest.raises(ApprovalExpired):
        permit(late)

    gate.validity = timedelta(days=7)
    unused = permit(opened(kind=gate.name))
    unused.pk, unused.hold = uuid4(), None
    unused.expires_at = unused.created_at - timedelta(seconds=1)
    unused.save(force_insert=True)

    assert approvals.expire_due() == 1
    unused.refresh_from_db()
    assert unused.state == Approval.State.EXPIRED
    assert not permissions.consume(approval_id=unused.pk, use=use_of(unused, gate))


@pytest.mark.one_database
def test_what_has_drifted_is_neither_allowed_nor_used(gate: GateKind) -> None:
    asked, allowed = opened(kind=gate.name), permit(opened(kind=gate.name))
    gate.drifted = "mission"

    with pytest.raises(ApprovalSuperseded):
        permit(asked)
    assert not permissions.consume(approval_id=allowed.pk, use=use_of(allowed, gate))
    allowed.refresh_from_db()
    assert (allowed.state, allowed.drifted) == ("superseded", "mission")


def test_a_yes_can_be_taken_back_until_it_is_used(gate: GateKind) -> None:
    unused, used = permit(opened(kind=gate.name)), permit(opened(kind=gate.name))
    permissions.consume(approval_id=used.pk, use=use_of(used, gate))

    assert permissions.revoke(approval_id=unused.pk, drifted="mission ended")
    assert not permissions.revoke(approval_id=used.pk, drifted="mission ended")
    assert not permissions.consume(approval_id=unused.pk, use=use_of(unused, gate))


def test_an_act_takes_no_permission_and_a_permission_becomes_no_act(
    gate: GateKind, kind: CountingKind
) -> None:
    act, permission = opened(kind=kind.name), opened(kind=gate.name)
    use = kind.freeze(Subject(act.subject_type, act.subject_id))

    with pytest.raises(UnknownKind):
        permit(act)
    with pytest.raises(UnknownKind):
        permissions.consume(approval_id=act.pk, use=use)
    with pytest.raises(UnknownKind):
        approvals.approve(
            approval_id=permission.pk, by=OPERATOR, via="console", digest=permission.digest
        )
    with pytest.raises(UnknownKind):
        approvals.approve_by_policy(request=request(kind=gate.name), judgement=ALLOWED)
    assert not Effect.objects.exists()


def test_an_effect_that_names_a_permission_makes_no_contact(
    gate: GateKind, kind: CountingKind
) -> None:
    approval = opened(kind=kind.name)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
    )
    registry.forget_kind(kind.name)
    gate.name = kind.name
    registry.register_permission(gate)

    assert effects.dispatch(effect_id=effect.pk).phase == Effect.Phase.FAILED
    assert kind.contacts() == []


@pytest.mark.one_database
def test_a_no_needs_a_reason_and_closes_the_hold(gate: GateKind) -> None:
    approval = opened(kind=gate.name)

    approvals.reject(approval_id=approval.pk, by=OPERATOR, via="console", reason="not that host")

    with pytest.raises(AlreadyDecided):
        permit(approval)
    assert approval.hold is not None
    approval.hold.refresh_from_db()
    assert (approval.hold.state, approval.hold.answer) == ("rejected", "not that host")


def test_what_consumes_it_and_fails_leaves_it_unused(gate: GateKind) -> None:
    approval = permit(opened(kind=gate.name))
    use = use_of(approval, gate)

    with pytest.raises(RuntimeError, match="crashed"), unit_of_work():
        assert permissions.consume(approval_id=approval.pk, use=use)
        raise RuntimeError("crashed")

    assert permissions.consume(approval_id=approval.pk, use=use)


@pytest.mark.one_database
def test_the_console_answers_it_on_the_same_page(gate: GateKind, client: Client) -> None:
    client.force_login(get_user_model().objects.create_superuser("ada", "ada@example.org", "x"))
    hold = held(kind=gate.name, subject=Subject("tests.gate", "1"), source=None)
    opened_at = client.post(reverse("admin:approvals_hold_open", args=[hold.pk])).headers[
        "location"
    ]
    approval = Approval.objects.get(hold=hold)

    page = client.get(opened_at).content.decode()
    assert "Exactly this would be allowed, once" in page and "Attachments" not in page
    client.post(
        reverse("admin:approvals_approval_approve", args=[approval.pk]),
        {"digest": approval.digest},
    )

    approval.refresh_from_db()
    assert (approval.state, approval.decided_via) == ("approved", "console")
    assert (
        "Allowed"
        in client.get(reverse("admin:approvals_hold_change", args=[hold.pk])).content.decode()
    )
