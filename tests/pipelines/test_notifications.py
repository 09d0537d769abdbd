"""What a requester learns: once, by setting, that it takes a while; then the result or one text."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from approvals.models import Effect
from approvals.signals import contact_returned
from guards.models import Identity
from mail.gateways.base import SendOutcome, SubmissionResult
from mail.models import Outbound
from pipelines.models import Pipeline, Stage
from pipelines.services import acknowledging, claims, control, execution, intake, replies, rules
from pipelines.types import RunResult
from teams.models import Event
from tests.databases import shared
from tests.pipelines.built_ins import Asking, asking_pipeline, installed
from tests.pipelines.factories import OPERATOR, body, script

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def after_a_minute(settings) -> None:
    settings.ACKNOWLEDGE_AFTER_SECONDS = 60


def long_ago(pipeline: Pipeline) -> Pipeline:
    Pipeline.objects.filter(pk=pipeline.pk).update(
        created_at=timezone.now() - timedelta(seconds=61)
    )
    return pipeline


def texts(server) -> list[str]:
    return [body(mail.payload) for mail in server.sent]


def test_who_waits_long_is_told_once_and_nothing_but_the_reference(desk, server):
    pipeline = long_ago(asking_pipeline(desk)[0])

    assert acknowledging.sweep() == 1
    assert acknowledging.sweep() == 0
    assert not acknowledging.acknowledge(pipeline_id=pipeline.pk)

    assert texts(server) == [
        f"This request is being worked on. Reference: pipeline-{pipeline.pk}\n"
    ]
    assert server.sent[0].recipients == (desk.requester.email,)
    assert Event.objects.filter(kind="pipeline.acknowledged").count() == 1


@pytest.mark.one_database
@pytest.mark.parametrize("seconds", [0, 62])
def test_nobody_is_told_before_the_time_or_where_the_setting_is_off(
    desk, server, settings, seconds
):
    settings.ACKNOWLEDGE_AFTER_SECONDS = seconds
    pipeline = long_ago(asking_pipeline(desk)[0])

    assert acknowledging.sweep() == 0
    assert not acknowledging.acknowledge(pipeline_id=pipeline.pk)
    assert server.submissions == 0


@pytest.mark.one_database
def test_it_stands_beside_the_answer_and_is_never_in_its_way(desk, server):
    """An acknowledgement that nobody knows the fate of would block a second act on its source."""
    server.next_result = SubmissionResult(SendOutcome.UNKNOWN, "cut-off")
    pipeline = long_ago(asking_pipeline(desk)[0])
    acknowledging.sweep()
    assert Effect.objects.get().phase == "unknown"

    with installed(Asking()):
        assert execution.run(pipeline_id=pipeline.pk).status == "completed"

    assert texts(server)[-1] == "done\n"
    assert not Event.objects.filter(kind="pipeline.acknowledged").exists()


@pytest.mark.one_database
def test_what_becomes_of_it_moves_no_pipeline(desk, server):
    server.next_result = SubmissionResult(SendOutcome.FAILED, "smtp-550")
    pipeline = long_ago(asking_pipeline(desk)[0])

    acknowledging.sweep()

    pipeline.refresh_from_db()
    assert pipeline.status == "planned"
    assert pipeline.stages.get(command="reply").status == "pending"


@pytest.mark.one_database
@pytest.mark.parametrize("reply", ["running", "succeeded", "waiting_approval"])
def test_it_is_never_sent_beside_an_answer_that_has_begun(desk, server, reply):
    pipeline = long_ago(asking_pipeline(desk)[0])
    Stage.objects.filter(pipeline=pipeline, command="reply").update(
        status=reply, lease_until=claims.lease_end()
    )

    assert acknowledging.sweep() == 0
    assert not acknowledging.acknowledge(pipeline_id=pipeline.pk)
    assert server.submissions == 0


@pytest.mark.one_database
def test_a_pipeline_that_has_nothing_to_do_but_to_answer_is_not_acknowledged(desk, server):
    pipeline = long_ago(asking_pipeline(desk)[0])
    pipeline.stages.exclude(command="reply").delete()

    assert acknowledging.sweep() == 0


@pytest.mark.one_database
def test_one_that_failed_or_has_ended_is_not_acknowledged(desk, server):
    failing = long_ago(asking_pipeline(desk, failing=True)[0])
    ended = long_ago(asking_pipeline(desk, status="cancelled")[0])

    assert acknowledging.sweep() == 0
    assert not any(acknowledging.acknowledge(pipeline_id=row.pk) for row in (failing, ended))


@pytest.mark.one_database
def test_where_each_mail_needs_a_persons_yes_none_is_asked_for_it(desk, server):
    Identity.objects.update(reply_policy=Identity.ReplyPolicy.APPROVE)
    long_ago(asking_pipeline(desk)[0])

    assert acknowledging.sweep() == 0
    assert Outbound.objects.count() == 0
    Identity.objects.update(reply_policy=Identity.ReplyPolicy.AUTO)
    assert acknowledging.sweep() == 1


@pytest.mark.one_database
@pytest.mark.invariant(22)
def test_acknowledgements_leave_half_of_the_hours_replies_to_answers(desk, server, settings):
    settings.AUTO_REPLIES_PER_IDENTITY_PER_HOUR = 4
    pipelines = [long_ago(asking_pipeline(desk)[0]) for _ in range(3)]

    assert acknowledging.sweep() == 2

    with installed(Asking([RunResult(ok=True, output=b'"done"')] * 3)):
        ended = [execution.run(pipeline_id=pipeline.pk).status for pipeline in pipelines]
    assert ended == ["completed", "completed", "running"]
    assert len(server.sent) == 4


@pytest.mark.one_database
def test_it_leaves_the_daily_caps_alone(desk, server, settings):
    """The fixed text after a cancellation of what never ran counts; an acknowledgement must not."""
    settings.AUTO_REPLIES_PER_SENDER_PER_DAY = 1
    pipeline = long_ago(asking_pipeline(desk)[0])
    acknowledging.sweep()

    control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)

    assert texts(server)[-1] == replies.fixed_text(pipeline.pk)
    assert len(server.sent) == 2


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
def test_a_worker_tells_the_requester_while_the_stage_runs(
    desk, owner, server, settings, tmp_path, scripts
):
    told = tmp_path / "told"
    waits = script(scripts, "waits", f'while [ ! -e "{told}" ]; do sleep 0.05; done; echo late')
    owner.install("waits", binary=waits)
    rules.save_rule(name="waits", match="waits", calls=[{"command": "waits"}], by=OPERATOR)

    def release(**facts) -> None:
        told.touch()

    contact_returned.connect(release)
    try:
        with shared(tmp_path):
            pipeline = intake.take_in(message_id=desk.message("waits").pk)
            assert pipeline is not None
            assert execution.run(pipeline_id=long_ago(pipeline).pk).status == "completed"
    finally:
        contact_returned.disconnect(release)

    assert texts(server) == [acknowledging.fixed_text(pipeline.pk), "late\n"]
