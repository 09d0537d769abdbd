"""The console's pipeline page offers what may be done to it, and does it by a POST alone."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from pipelines.services import execution
from pipelines.types import RunResult
from tests.pipelines.built_ins import Asking, asking_pipeline, installed

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

AGAIN = RunResult(ok=False, error="too many turns", retriable=True)


def test_what_stopped_can_go_on_from_the_page(desk, server, admin_client: Client):
    pipeline, _ = asking_pipeline(desk)
    page = reverse("admin:pipelines_pipeline_change", args=[pipeline.pk])
    resume = reverse("admin:pipelines_pipeline_resume", args=[pipeline.pk])
    assert resume not in admin_client.get(page).content.decode()
    with installed(Asking([AGAIN, RunResult(ok=True, output=b'"done"')], repeatable=True)):
        execution.run(pipeline_id=pipeline.pk)
        assert resume in admin_client.get(page).content.decode()
        assert admin_client.get(resume).status_code == 405

        admin_client.post(resume)

        pipeline.refresh_from_db()
        assert (pipeline.status, pipeline.resumptions) == ("queued", 1)


def test_what_must_not_be_repeated_is_refused_with_the_rule(desk, server, admin_client: Client):
    pipeline, _ = asking_pipeline(desk)
    with installed(Asking([AGAIN])):
        execution.run(pipeline_id=pipeline.pk)
        url = reverse("admin:pipelines_pipeline_resume", args=[pipeline.pk])
        said = admin_client.post(url, follow=True).content.decode()

    assert "does not say that it may be repeated" in said
    pipeline.refresh_from_db()
    assert pipeline.status == "failed"


def test_what_has_not_ended_can_be_cancelled_from_the_page(desk, server, admin_client: Client):
    pipeline, _ = asking_pipeline(desk)

    admin_client.post(reverse("admin:pipelines_pipeline_cancel", args=[pipeline.pk]))

    pipeline.refresh_from_db()
    assert pipeline.status == "cancelled"
    assert "cancelled it" in pipeline.error
