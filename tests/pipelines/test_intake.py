"""Stage 0: a message becomes one pipeline, from its raw bytes, once, ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.files.storage import storages

from guards.models import Decision, Identity, PinnedKey, ReplayEntry
from mail.gateways import blobs
from mail.models import Message
from mail.signals import message_admitted
from pipelines import registry
from pipelines.models import Pipeline, Rule
from pipelines.services import execution, intake, rules
from pipelines.tasks import sweep, take_in
from pipelines.types import CommandCall, Plan
from teams.models import Event
from teams.sentences import sentence
from tests.pipelines.factories import OPERATOR, AccountFactory, MessageFactory, body

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def rule(owner) -> Rule:
    owner.install(args=[{"name": "whom", "type": "string"}])
    return rules.save_rule(
        name="greet", match=r"greet (?P<whom>\w+)", kind="regex", by=OPERATOR,
        calls=[{"command": "greet", "args": {"whom": {"group": "whom"}}}],
    )  # fmt: skip


def test_it_plans_takes_the_message_and_counts_the_hit_in_one_transaction(desk, rule):
    message = desk.message("greet ada")

    pipeline = intake.take_in(message_id=message.pk)

    assert pipeline is not None
    assert (pipeline.status, pipeline.planner, pipeline.requester) == (
        "planned", "rule:greet", desk.requester.email
    )  # fmt: skip
    assert pipeline.plan == [{"command": "greet", "args": {"whom": "ada"}}]
    assert pipeline.pipe["data"]["text"].splitlines()[-1] == "greet ada"
    assert [stage.command for stage in pipeline.stages.all()] == ["greet", "reply"]
    message.refresh_from_db()
    rule.refresh_from_db()
    assert message.execution == Message.Execution.TAKEN
    assert rule.hits == 1
    assert ReplayEntry.objects.get().subject_id == str(pipeline.pk)
    event = Event.objects.get(kind="pipeline.planned")
    assert (event.facts["commands"], event.facts["plan"]) == (["greet"], "greet")


def test_a_message_is_taken_once(desk):
    message = desk.message("greet ada")

    assert intake.take_in(message_id=message.pk) is not None
    assert intake.take_in(message_id=message.pk) is None
    assert Pipeline.objects.count() == 1


@pytest.mark.invariant(12)
@pytest.mark.fault("W6", "sister-9")
def test_the_same_signed_bytes_never_start_a_second_pipeline(desk):
    raw = desk.raw("greet ada")
    again = raw.replace(b"Message-ID: <", b"X-New: header\r\nMessage-ID: <other-")
    first = desk.message("", raw=raw)
    second = desk.message("", raw=again)

    assert intake.take_in(message_id=first.pk) is not None
    assert intake.take_in(message_id=second.pk) is None
    second.refresh_from_db()
    assert (second.execution, second.verdict, second.rule) == ("refused", "hold", "replayed")
    assert Decision.objects.filter(rule="replayed", verdict="hold").count() == 1
    assert Pipeline.objects.count() == 1


@pytest.mark.invariant(12)
@pytest.mark.fault("W6")
def test_a_replay_into_another_mailbox_of_the_house_is_a_replay(desk):
    raw = desk.raw("greet ada")
    first = desk.message("", raw=raw)
    other = MessageFactory(
        raw=raw, account=AccountFactory(identity=desk.identity), sender=desk.requester.email
    )

    assert intake.take_in(message_id=first.pk) is not None
    assert intake.take_in(message_id=other.pk) is None
    other.refresh_from_db()
    assert other.rule == "replayed"


@pytest.mark.one_database
@pytest.mark.invariant(11)
@pytest.mark.fault("W5")
def test_a_rule_reads_the_signed_text_and_never_the_subject(desk):
    message = desk.message("", raw=desk.raw("nothing here", subject="greet ada"))

    pipeline = intake.take_in(message_id=message.pk)

    assert pipeline is not None
    assert pipeline.refused_rule == "no-plan"


@pytest.mark.one_database
def test_a_permission_that_was_withdrawn_meanwhile_counts(desk):
    message = desk.message("greet ada")
    desk.permission.execute = False
    desk.permission.save()

    assert intake.take_in(message_id=message.pk) is None
    message.refresh_from_db()
    assert message.execution == Message.Execution.REFUSED
    assert ReplayEntry.objects.count() == 0


@pytest.mark.one_database
@pytest.mark.parametrize("is_active", [True, False])
def test_an_identity_that_was_retired_meanwhile_works_no_more(desk, is_active):
    message = desk.message("greet ada")
    Identity.objects.filter(pk=desk.identity.pk).update(is_active=is_active)

    intake.take_in(message_id=message.pk)

    message.refresh_from_db()
    wanted = ("taken", "execute-permitted") if is_active else ("refused", "no-permission")
    assert (message.execution, message.rule) == wanted
    assert Pipeline.objects.count() == (1 if is_active else 0)


@pytest.mark.one_database
@pytest.mark.invariant(6)
@pytest.mark.fault("W7")
def test_what_the_row_says_counts_for_nothing_beside_the_raw_bytes(desk, keys):
    forged = desk.message("", raw=desk.raw("greet ada", key=keys.mallory))
    unpinned = desk.message("greet ada")

    assert intake.take_in(message_id=forged.pk) is None
    PinnedKey.objects.update(removed_at="2026-01-01T00:00:00Z")
    assert intake.take_in(message_id=unpinned.pk) is None
    forged.refresh_from_db()
    assert forged.rule == "trust-too-low"


@pytest.mark.one_database
def test_a_row_that_names_another_sender_than_the_bytes_starts_nothing(desk, server):
    message = desk.message("greet ada")
    Message.objects.update(sender="mallory@example.net")

    assert intake.take_in(message_id=message.pk) is None
    message.refresh_from_db()
    assert (message.execution, message.rule) == ("refused", "no-identity")
    assert server.submissions == 0


@pytest.mark.one_database
def test_while_gpg_cannot_be_asked_the_message_stays_due(desk, monkeypatch):
    message = desk.message("greet ada")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        assert intake.take_in(message_id=message.pk) is None
    message.refresh_from_db()
    assert message.execution == Message.Execution.DUE

    assert intake.take_in(message_id=message.pk) is not None


@pytest.mark.one_database
def test_while_its_bytes_cannot_be_read_the_message_stays_due(desk, monkeypatch):
    message = desk.message("greet ada")
    stored = Path(storages["mail"].path(blobs.name_of(message.sha256)))
    away = stored.rename(stored.with_suffix(".away"))

    assert intake.take_in(message_id=message.pk) is None
    message.refresh_from_db()
    assert message.execution == Message.Execution.DUE

    away.rename(stored)
    assert intake.take_in(message_id=message.pk) is not None


@pytest.mark.one_database
@pytest.mark.fault("W15")
def test_a_missing_plan_still_makes_a_pipeline_that_only_answers(desk, server):
    message = desk.message("what is the weather?")

    pipeline = intake.take_in(message_id=message.pk)
    assert pipeline is not None
    pipeline = execution.run(pipeline_id=pipeline.pk)

    assert (pipeline.status, pipeline.refused_rule, pipeline.planner) == (
        "failed",
        "no-plan",
        "none",
    )
    assert [stage.command for stage in pipeline.stages.all()] == ["reply"]
    event = Event.objects.get(kind="pipeline.planned")
    assert sentence(event) == "A pipeline was planned by none: only an answer (no-plan)."
    assert "could not be completed" in body(server.sent[0].payload)
    assert server.sent[0].payload.lower().count(b"auto-submitted: auto-replied") == 1


@pytest.mark.one_database
@pytest.mark.fault("W15")
def test_requests_without_a_plan_are_answered_once_a_day(desk, server):
    for text in ("what is the weather?", "and tomorrow?"):
        take_in(desk.message(text).pk)

    assert [pipeline.status for pipeline in Pipeline.objects.all()] == ["failed", "failed"]
    assert len(server.sent) == 1
    take_in(desk.message("greet ada").pk)
    assert len(server.sent) == 2


@pytest.mark.one_database
def test_a_refused_plan_names_its_rule_and_the_operator_sees_why(desk, server, owner):
    rules.save_rule(name="bad", match="bad", calls=[{"command": "nobody"}], by=OPERATOR)

    take_in(desk.message("bad").pk)

    pipeline = Pipeline.objects.get()
    assert (pipeline.status, pipeline.refused_rule) == ("failed", "unknown-command")
    assert "nobody" in pipeline.error
    assert "nobody" not in body(server.sent[0].payload)


def test_hostile_text_and_a_hostile_plan_are_kept_in_a_form_every_database_takes(desk, server):
    class Hostile:
        name = "hostile"

        def plan(self, request):
            return Plan(
                "hostile", (CommandCall("a\0b" * 99, {"x": "\0\ud800", "n": float("nan")}),)
            )

    registry.register_planner(Hostile())
    try:
        take_in(desk.message("free \0 text").pk)
    finally:
        del registry._planners["hostile"]

    pipeline = Pipeline.objects.get()
    assert (pipeline.status, pipeline.refused_rule) == ("failed", "unknown-command")
    assert pipeline.plan[0]["args"] == {}
    assert "\0" not in pipeline.pipe["data"]["text"]


@pytest.mark.one_database
def test_an_admitted_message_is_enqueued_when_its_transaction_commits(
    desk, django_capture_on_commit_callbacks
):
    message = desk.message("greet ada")

    with django_capture_on_commit_callbacks() as callbacks:
        message_admitted.send(sender=Message, message=message)

    assert len(callbacks) == 1


def test_the_sweep_finds_what_was_due_and_never_taken(desk, django_capture_on_commit_callbacks):
    desk.message("greet ada")
    waiting = intake.take_in(message_id=desk.message("greet bob").pk)
    assert waiting is not None

    with django_capture_on_commit_callbacks() as callbacks:
        sweep()

    assert len(callbacks) == 2


@pytest.mark.one_database
def test_the_task_carries_the_pipeline_out(desk, server):
    take_in(desk.message("greet ada").pk)

    assert Pipeline.objects.get().status == "completed"
    assert body(server.sent[0].payload) == "--whom=ada\n"
    take_in(99_999)
