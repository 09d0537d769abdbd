"""Missions in the console: a pipeline's time and results, their costs, what waits for a person."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from pipelines.admin import timeline
from pipelines.models import Mission, Pipeline, Stage, ToolCall
from tests.console.sample import Sample
from tests.console.test_get_is_safe import state_of_the_house
from tests.console.test_pages import page
from tests.console.test_queries import cost
from tests.guards.factories import ContactFactory, PermissionFactory

COSTS = "pipelines_mission_costs"


def pipeline_page(console: Client, pipeline: Pipeline) -> str:
    return page(console, "pipelines_pipeline_change", pipeline.pk)


def needs(console: Client) -> dict[str, str]:
    """What waits, by kind: the row's own text."""
    html = page(console, "index")
    rows = [part.split("</li>")[0] for part in html.split('data-need="')[1:]]
    return {row.split('"')[0]: row for row in rows}


@pytest.mark.one_database
def test_contract_and_result_stand_side_by_side(console: Client, sample: Sample):
    reviewed = sample.missions.reviewed
    PermissionFactory(
        identity=reviewed.identity,
        contact=ContactFactory(address=reviewed.message.sender),
        read=True,
    )
    html = pipeline_page(console, sample.missions.reviewed)
    pair = html.split('class="cs-pair"')[1].split("</article>")[0]
    contract, result = pair.split('aria-label="Result"')
    assert "Read the report in your contract" in contract and "report.md" in contract
    assert "Two figures in table 3 do not add up" in result and "round 2" in result
    assert "Is the March figure final?" in result
    assert reverse("admin:pipelines_mission_change", args=[sample.missions.ended.pk]) in contract


def test_turns_and_dollars_are_shown_by_stage_and_in_all(console: Client, sample: Sample):
    html = pipeline_page(console, sample.missions.reviewed)
    assert "14 turns, 0.83 USD" in html
    assert "<dt>Cost</dt><dd>0.83 USD, 14 turns</dd>" in html
    assert "<dt>Cost</dt>" not in pipeline_page(console, sample.completed)


@pytest.mark.one_database
def test_a_pipeline_says_what_it_waits_for_and_where_that_is_answered(
    console: Client, sample: Sample
):
    html = pipeline_page(console, sample.missions.waiting)
    assert "tidy asks whether it may use Edit." in html
    hold = reverse("admin:approvals_hold_change", args=[sample.missions.question.hold_id])
    assert hold in html.split('aria-label="Contract"')[0]
    assert "The work is done" not in html
    ToolCall.objects.filter(pk=sample.missions.question.pk).update(state="rejected")
    assert "asks whether it may use Edit." not in pipeline_page(console, sample.missions.waiting)


@pytest.mark.one_database
def test_a_queued_pipeline_says_that_it_waits_for_its_turn(console: Client, sample: Sample):
    Pipeline.objects.filter(pk=sample.completed.pk).update(status="queued", finished_at=None)
    assert "It is in the queue" in pipeline_page(console, sample.completed)


@pytest.mark.one_database
def test_the_timeline_puts_each_stage_where_it_ran(console: Client, sample: Sample):
    pipeline = sample.missions.reviewed
    stages = timeline.stages_of(pipeline, with_missions=True, is_covered=False)
    lines = timeline.lines(pipeline, stages, {"succeeded": "ok"})
    assert [line.name for line in lines] == [
        *("in the queue", "1. count-words", "2. review", "3. reply"),
    ]
    bars = [line.bars[0] for line in lines]
    assert [bar.x for bar in bars] == sorted(bar.x for bar in bars)
    assert all(bar.x >= 0 and bar.x + bar.width <= timeline.WIDTH for bar in bars)
    assert bars[2].width > 5 * bars[1].width, "the review took most of the time"
    html = pipeline_page(console, pipeline)
    assert html.count("<rect") >= 4 and "+6 s" in html


@pytest.mark.one_database
def test_what_waited_for_a_person_is_drawn_as_waiting(sample: Sample):
    stages = timeline.stages_of(sample.missions.waiting, with_missions=True, is_covered=False)
    lines = timeline.lines(sample.missions.waiting, stages, {})
    assert [bar.tone for bar in lines[1].bars] == ["quiet", "wait"]
    assert lines[2].bars == [], "the reply has not begun"


@pytest.mark.one_database
def test_missions_are_for_those_who_may_see_them(sample: Sample):
    nina = User.objects.create_user("nina", password="nina-pass-1", is_staff=True)
    nina.user_permissions.set(Permission.objects.filter(codename="view_pipeline"))
    browser = Client()
    browser.force_login(nina)
    html = pipeline_page(browser, sample.missions.reviewed)
    assert "Read the report in your contract" not in html
    assert browser.get(reverse(f"admin:{COSTS}")).status_code == 403
    nina.user_permissions.add(Permission.objects.get(codename="view_mission"))
    assert "Read the report in your contract" in pipeline_page(browser, sample.missions.reviewed)
    assert browser.get(reverse(f"admin:{COSTS}")).status_code == 200


@pytest.mark.one_database
def test_a_pipelines_page_costs_the_same_with_more_missions(console: Client, sample: Sample):
    url = reverse("admin:pipelines_pipeline_change", args=[sample.missions.reviewed.pk])
    before = cost(console, url)
    template = sample.missions.ended
    for position in range(10, 16):
        stage = Stage.objects.create(
            pipeline=sample.missions.reviewed,
            position=position,
            command="review",
            runner="claude",
            status="failed",
        )
        Mission.objects.create(
            pipeline=stage.pipeline,
            stage=stage,
            command="review",
            contract=template.contract,
            contract_sha256="c" * 64,
            max_usd=1,
            worker="claude:worker",
            evaluator="countersign:gate",
            evaluator_digest="e" * 64,
        )
    assert cost(console, url) <= before


@pytest.mark.one_database
def test_costs_are_plotted_and_written_out(console: Client, sample: Sample):
    html = page(console, COSTS)
    assert html.count('<canvas class="chart"') == html.count("The same as a table") == 3
    for said in ("review", "tidy", "dora@partners.example", "erin@partners.example"):
        assert f"<td>{said}</td>" in html, said
    spent = sum(mission.usd for mission in Mission.objects.all())
    assert f"{spent:.2f}" in html


@pytest.mark.one_database
def test_the_bars_are_the_numbers_of_the_table(console: Client, sample: Sample):
    answer = console.get(reverse(f"admin:{COSTS}"))
    by_command = answer.context["plots"][1]
    drawn = json.loads(by_command.chart)["datasets"][0]["data"]
    assert [f"{usd:.2f}" for usd in drawn if usd >= 1] == [
        row[1] for row in by_command.rows if float(row[1]) >= 1
    ]
    assert drawn == sorted(drawn, reverse=True)


@pytest.mark.one_database
@pytest.mark.parametrize(("asked", "days"), [("7", 7), ("90", 90), ("8", 30), ("x", 30), ("", 30)])
def test_the_span_is_one_of_those_offered(console: Client, sample: Sample, asked: str, days: int):
    answer = console.get(reverse(f"admin:{COSTS}"), {"days": asked})
    assert answer.context["days"] == days
    first = json.loads(answer.context["plots"][0].chart)
    assert len(first["labels"]) == days


def test_costs_before_the_span_do_not_count(console: Client, sample: Sample):
    week = console.get(reverse(f"admin:{COSTS}"), {"days": "7"}).context["total"]
    month = console.get(reverse(f"admin:{COSTS}"), {"days": "30"}).context["total"]
    since = timezone.now() - timedelta(days=30)
    assert (
        week.usd
        < month.usd
        == sum(mission.usd for mission in Mission.objects.filter(opened_at__gte=since))
    )


@pytest.mark.one_database
def test_the_costs_page_asks_the_same_with_more_missions(console: Client, sample: Sample):
    url = reverse(f"admin:{COSTS}")
    before = cost(console, url)
    stages = Stage.objects.filter(missions=None, runner="claude")
    template = sample.missions.ended
    Mission.objects.bulk_create(
        Mission(
            pipeline=stage.pipeline,
            stage=stage,
            command=f"other-{stage.pk}",
            contract={},
            contract_sha256="c" * 64,
            max_usd=1,
            usd=1,
            worker="claude:worker",
            evaluator=template.evaluator,
            evaluator_digest="e" * 64,
        )
        for stage in stages
    )
    assert stages.model.objects.filter(missions__command__startswith="other-").exists()
    assert cost(console, url) <= before


@pytest.mark.one_database
def test_without_missions_the_page_says_what_would_cost(console: Client):
    assert "Nothing was spent in these 30 days" in page(console, COSTS)


@pytest.mark.one_database
@pytest.mark.invariant(21)
def test_looking_at_costs_changes_nothing(console: Client, sample: Sample):
    before = state_of_the_house()
    assert console.get(reverse(f"admin:{COSTS}")).status_code == 200
    assert console.post(reverse(f"admin:{COSTS}")).status_code == 405
    assert state_of_the_house() == before


@pytest.mark.one_database
def test_each_need_of_a_worker_leads_to_where_it_is_answered(console: Client, sample: Sample):
    found = needs(console)
    hold = sample.missions.question.hold_id
    assert reverse("admin:approvals_hold_open", args=[hold]) in found["tool-call"]
    assert "may use Edit" in found["tool-call"]
    stuck = reverse("admin:pipelines_mission_change", args=[sample.missions.stuck.pk])
    assert stuck in found["stuck-mission"] and "web:src" in found["stuck-mission"]
    assert "summary was not started" in found["budget-reached"]
    assert "24.10 are spent" in found["budget-reached"]
    assert "lint was not started" in found["sandbox-missing"]


@pytest.mark.one_database
def test_a_question_that_was_answered_asks_no_more(console: Client, sample: Sample):
    ToolCall.objects.filter(pk=sample.missions.question.pk).update(state="allowed")
    assert "tool-call" not in needs(console)


@pytest.mark.one_database
def test_a_worker_that_started_since_asks_for_nobody(console: Client, sample: Sample):
    stage = Stage.objects.get(command="lint")
    template = sample.missions.ended
    Mission.objects.create(
        pipeline=stage.pipeline,
        stage=stage,
        command="lint",
        contract={},
        contract_sha256="c" * 64,
        max_usd=1,
        worker="claude:worker",
        evaluator=template.evaluator,
        evaluator_digest="e" * 64,
        opened_at=timezone.now(),
    )
    found = needs(console)
    assert "sandbox-missing" not in found and "budget-reached" in found


@pytest.mark.one_database
def test_a_budget_of_yesterday_asks_for_nobody(console: Client, sample: Sample):
    yesterday = timezone.now() - timedelta(days=1, hours=1)
    Stage.objects.filter(command__in=["summary", "lint"]).update(finished_at=yesterday)
    found = needs(console)
    assert "budget-reached" not in found
    assert "sandbox-missing" in found, "nobody has mended it since"


@pytest.mark.one_database
def test_mail_that_started_nothing_says_the_rule_and_what_would_help(
    console: Client, sample: Sample
):
    html = page(console, "mail_message_change", sample.bad_signature.pk)
    panel = html.split('id="cs-work"')[1].split("</section>")[0]
    assert "Why did this start no work?" in panel
    assert "What would help" in panel
