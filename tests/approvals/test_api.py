"""The API shows what waits, was approved and left, to whom it concerns, and changes nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from approvals.models import Job
from approvals.schemas import EffectOut
from approvals.services import effects
from approvals.types import ContactOutcome, ContactResult
from guards.services import identities, tokens
from teams.models import Event
from tests.approvals import factories
from tests.approvals.kinds import CountingKind

pytestmark = pytest.mark.django_db


def asking(*scopes: str, **holder: Any) -> Client:
    _, secret = tokens.mint(
        label="reader", scopes=scopes or ["approvals:read"], by=factories.OPERATOR, **holder
    )
    return Client(headers={"authorization": f"Bearer {secret}"})


def get(client: Client, path: str, status: int = 200) -> Any:
    answer = client.get(f"/api/v1{path}")
    assert answer.status_code == status, answer.content
    return answer.json()


@pytest.mark.one_database
def test_it_shows_hold_approval_and_effect(kind: CountingKind) -> None:
    effect = effects.dispatch(effect_id=factories.intent().pk)
    factories.held()
    client = asking()
    holds = get(client, "/holds")["items"]
    assert [hold["state"] for hold in holds] == ["waiting", "sent"]
    assert len(get(client, "/holds?state=waiting")["items"]) == 1
    (approval,) = get(client, "/approvals?state=consumed")["items"]
    assert approval["decided_by"] == "operator:ada"
    (shown,) = get(client, "/effects?phase=accepted")["items"]
    assert shown == get(client, f"/effects/{effect.pk}")
    assert (shown["reason"], shown["digest"]) == ("smtp-250", effect.digest)
    assert get(client, "/effects?phase=nonsense", 422)["field"]


@pytest.mark.one_database
def test_neither_body_nor_address_is_shown(kind: CountingKind) -> None:
    effects.dispatch(effect_id=factories.intent().pk)
    client = asking()
    for path in ("/holds", "/approvals", "/effects"):
        text = client.get(f"/api/v1{path}").content
        assert b"owner@example.org" not in text
        assert b"exactly" not in text


@pytest.mark.one_database
def test_what_a_server_said_and_to_whom_is_told_as_numbers(kind: CountingKind) -> None:
    effect = effects.dispatch(effect_id=factories.intent().pk)
    effect.detail = {
        "code": 550,
        "reply": "550 <ada@example.org>: no such user",
        "refused": {"ada@example.org": "550 no such user"},
        "taken": ["bob@example.org", "eve@example.org"],
        "final_dot_sent": True,
    }
    told = EffectOut.of(effect).detail
    assert told == {"code": 550, "refused": 1, "taken": 2, "final_dot_sent": True}


@pytest.mark.one_database
def test_what_a_server_said_too_late_is_told_as_numbers_as_well(kind: CountingKind) -> None:
    effect = factories.intent()
    said = {"code": 550, "reply": "no <ada@example.org>", "refused": {"ada@example.org": "550"}}
    kind.result = ContactResult(ContactOutcome.FAILED, "recipients-refused", said)

    def give_up() -> None:
        past = timezone.now() - timedelta(seconds=1)
        Job.objects.filter(pk=effect.job_id).update(deadline=past)
        assert effects.reconcile() == 1

    kind.after = give_up
    effects.dispatch(effect_id=effect.pk)
    (shown,) = get(asking(), "/effects")["items"]
    (seen,) = shown["observations"]
    assert seen["detail"] == {"code": 550, "refused": 1, "reason": "recipients-refused"}


@pytest.mark.one_database
def test_each_token_sees_what_concerns_it(kind: CountingKind) -> None:
    bot = identities.create_identity(
        handle="bot", email="bot@example.org", kind="agent", by=factories.OPERATOR
    )
    eve = identities.create_identity(
        handle="eve", email="eve@example.org", kind="agent", by=factories.OPERATOR
    )
    effect = factories.intent(project="apollo")
    for client, sees in (
        (asking(), True),
        (asking(identity=bot), True),
        (asking(identity=eve), False),
        (asking(project="apollo"), True),
        (asking(project="gemini"), False),
    ):
        for path in ("/holds", "/approvals", "/effects"):
            assert bool(get(client, path)["items"]) == sees
        get(client, f"/effects/{effect.pk}", 200 if sees else 404)


@pytest.mark.one_database
def test_reading_needs_the_scope_and_changes_nothing(kind: CountingKind) -> None:
    factories.opened()
    assert Client().get("/api/v1/holds").status_code == 401
    assert get(asking("events:read"), "/holds", 403)["rule"]
    client = asking()
    before = Event.objects.count()
    for path in ("/holds", "/approvals", "/effects"):
        get(client, path)
        assert client.post(f"/api/v1{path}").status_code == 405
    assert Event.objects.count() == before
