"""The console's pipeline page offers what may be done to it, and does it by a POST alone."""

from __future__ import annotations

from html import unescape

import pytest
from django.test import Client
from django.urls import reverse

from mail.models import Outbound
from pipelines.services import execution
from pipelines.types import RunResult
from tests.pipelines.built_ins import Asking, asking_pipeline, installed
from tests.pipelines.factories import PipelineFactory, StageFactory

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


def test_before_a_cancel_the_page_says_in_one_sentence_what_is_lost(
    desk, server, admin_client: Client
):
    pipeline, _ = asking_pipeline(desk)
    page = reverse("admin:pipelines_pipeline_change", args=[pipeline.pk])
    cancel = reverse("admin:pipelines_pipeline_cancel", args=[pipeline.pk])
    asked = admin_client.get(page).content.decode()
    before, _, confirm = asked.partition("<summary>Cancel it</summary>")

    assert (before.count(cancel), confirm.count(cancel)) == (0, 1)
    said = unescape(confirm.split('id="cs-lost">')[1].split("</p>")[0])
    assert said == (
        f"Ask will never run; {pipeline.requester} gets the fixed text instead of an answer; "
        "none of this can be taken back."
    )
    assert 'aria-describedby="cs-lost"' in confirm

    admin_client.post(cancel)
    assert "Cancel it" not in admin_client.get(page).content.decode()


def test_a_question_that_waits_is_named_among_what_is_lost(admin_client: Client):
    waiting = PipelineFactory(status="waiting_approval")
    StageFactory(pipeline=waiting, position=1, command="ask", status="waiting_approval")
    page = reverse("admin:pipelines_pipeline_change", args=[waiting.pk])
    said = "Ask is ended where it stands; what waits for a person is withdrawn; "
    assert said in admin_client.get(page).content.decode()


def test_so_is_the_reply_that_waits(admin_client: Client):
    waiting = PipelineFactory(status="waiting_approval")
    Outbound.objects.create(
        account=waiting.message.account,
        origin_type="pipelines.pipeline",
        origin_id=str(waiting.pk),
        to=["alice@example.org"],
        status=Outbound.Status.HELD,
    )
    page = reverse("admin:pipelines_pipeline_change", args=[waiting.pk])
    said = "The reply that waits is withdrawn and never sent; what the stages have done stays done"
    assert said in admin_client.get(page).content.decode()
