"""Lists and pages cost the same however much there is."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.console.sample import Sample, message

pytestmark = pytest.mark.one_database

LISTS = (
    "index",
    "mail_message_changelist",
    "mail_thread_changelist",
    "mail_outbound_changelist",
    "approvals_hold_changelist",
    "pipelines_pipeline_changelist",
    "teams_event_changelist",
)


def cost(client: Client, url: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert client.get(url).status_code == 200
    return len(captured)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_costs_the_same_with_more_rows(console: Client, sample: Sample, name: str):
    url = reverse(f"admin:{name}")
    console.get(url)  # warms what is cached per process
    before = cost(console, url)
    for number in range(500, 512):
        message(
            sample.account,
            number,
            sender=f"new{number}@partners.example",
            subject=f"New {number}",
            text=f"New {number}",
        )
    assert cost(console, url) <= before


def test_the_index_stays_within_a_fixed_budget(console: Client, sample: Sample):
    console.get(reverse("admin:index"))
    assert cost(console, reverse("admin:index")) <= 35
