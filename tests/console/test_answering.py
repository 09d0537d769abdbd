"""Opening a held draft, and the three answers, as the console's buttons give them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import registry
from approvals.models import Approval, Effect, Hold
from approvals.services import artifacts, effects
from guards.types import Subject
from tests.approvals import factories
from tests.approvals.kinds import CountingKind


@pytest.fixture
def approval(db: None, tmp_path: Path) -> Iterator[Approval]:
    """A draft that is open for review, of a kind that counts its contacts."""
    artifacts.ensure_key()
    kind = CountingKind(tmp_path / "contacts")
    registry.register_kind(kind)
    subject = Subject("mail.outbound", str(uuid.uuid4()))
    yield factories.opened(kind=kind.name, subject=subject)
    registry.forget_kind(kind.name)


def press(client: Client, approval: Approval, answer: str, **fields: str) -> list[str]:
    """Press a button of the approval's page; what the console says then."""
    url = reverse(f"admin:approvals_approval_{answer}", args=[approval.pk])
    answered = client.post(url, fields)
    assert answered.status_code == 302
    return [str(message) for message in get_messages(answered.wsgi_request)]


def test_opening_leads_to_the_page_of_the_approval(console: Client, approval: Approval):
    url = reverse("admin:approvals_hold_open", args=[approval.hold_id])
    answer = console.post(url)
    newest = Approval.objects.filter(hold=approval.hold, state="pending").get()
    assert answer["Location"] == reverse("admin:approvals_approval_change", args=[newest.pk])


def test_a_yes_to_what_was_shown_makes_the_one_effect(console: Client, approval: Approval):
    said = press(console, approval, "approve", digest=approval.digest)
    assert said == ["Approved. It leaves now, exactly once."]
    effect = Effect.objects.get()
    assert effect.digest == approval.digest
    assert Approval.objects.get(pk=approval.pk).decided_by == "operator:olga"


@pytest.mark.one_database
@pytest.mark.invariant(18)
@pytest.mark.fault("approval-02")
@pytest.mark.parametrize("digest", ["", "0" * 64])
def test_a_yes_to_anything_else_makes_none(console: Client, approval: Approval, digest: str):
    said = press(console, approval, "approve", digest=digest)
    assert len(said) == 1 and not said[0].startswith("Approved")
    assert not Effect.objects.exists()


@pytest.mark.one_database
def test_the_page_looks_again_until_the_act_has_ended(console: Client, approval: Approval):
    again = '<meta http-equiv="refresh"'
    url = reverse("admin:approvals_approval_change", args=[approval.pk])
    assert again not in console.get(url).content.decode()
    press(console, approval, "approve", digest=approval.digest)
    assert again in console.get(url).content.decode()
    effects.dispatch(effect_id=Effect.objects.get().pk)
    assert again not in console.get(url).content.decode()


def test_a_second_click_makes_no_second_effect(console: Client, approval: Approval):
    press(console, approval, "approve", digest=approval.digest)
    press(console, approval, "approve", digest=approval.digest)
    assert Effect.objects.count() == 1


@pytest.mark.one_database
@pytest.mark.fault("approval-04")
@pytest.mark.parametrize(
    ("answer", "state"), [("reject", "rejected"), ("request_changes", "changes_requested")]
)
def test_a_no_needs_its_reason_and_keeps_it(
    console: Client, approval: Approval, answer: str, state: str
):
    assert "say why" in press(console, approval, answer, reason=" ")[0].lower()
    assert Approval.objects.get(pk=approval.pk).state == "pending"
    press(console, approval, answer, reason="the sum is wrong")
    decided = Approval.objects.get(pk=approval.pk)
    assert (decided.state, decided.reason) == (state, "the sum is wrong")
    assert Hold.objects.get(pk=approval.hold_id).state != "waiting"
    assert not Effect.objects.exists()


@pytest.mark.one_database
def test_what_drifted_is_named_and_the_buttons_are_grey(console: Client, approval: Approval):
    url = reverse("admin:approvals_approval_change", args=[approval.pk])
    assert "<strong>Text has changed" not in console.get(url).content.decode()
    kind = registry.kind(approval.kind)
    assert isinstance(kind, CountingKind)
    kind.drifted = "text"
    html = console.get(url).content.decode()
    assert "<strong>Text has changed since this was opened.</strong>" in html
    approve = html.split('value="approve"')[1].split(">")[0]
    assert "disabled" in approve


@pytest.mark.one_database
def test_a_review_whose_time_is_over_cannot_be_answered(
    console: Client, approval: Approval, settings
):
    settings.APPROVAL_SECONDS = 0
    console.post(reverse("admin:approvals_hold_open", args=[approval.hold_id]))
    newest = Approval.objects.order_by("-created_at").first()
    assert newest is not None and newest.expires_at <= timezone.now() + timedelta(seconds=1)
    said = press(console, newest, "approve", digest=newest.digest)
    assert not said[0].startswith("Approved")
    assert not Effect.objects.exists()
