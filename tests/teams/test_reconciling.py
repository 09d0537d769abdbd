"""The reconcile pass tells the log of records that it was never told of, and of nothing twice."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command

from approvals.models import Hold
from approvals.services import effects
from teams import reconciliation
from teams.models import Event
from teams.services import verification
from tests.approvals import factories
from tests.approvals.conftest import installation_keys, kind  # noqa: F401
from tests.approvals.kinds import CountingKind

pytestmark = pytest.mark.django_db


def test_what_went_through_the_services_has_its_events(kind: CountingKind) -> None:  # noqa: F811
    effects.dispatch(effect_id=factories.intent().pk)
    factories.opened()
    assert reconciliation.raise_missing_events() == 0


def test_a_record_without_an_event_gets_one_once(kind: CountingKind) -> None:  # noqa: F811
    kept = factories.held()
    Hold.objects.create(
        kind=kept.kind, subject_type="t", subject_id="imported", reason="import", requested_by="x"
    )
    out = StringIO()
    call_command("reconcile", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {
        "approvals_expired": 0,
        "effects_settled": 0,
        "events_raised": 1,
    }
    assert Event.objects.filter(kind="hold.opened").count() == 2
    assert reconciliation.raise_missing_events() == 0
    assert verification.verify().ok
