"""`manage.py pipeline list|show|retry|cancel`: the same acts as the console's, for the shell."""

from __future__ import annotations

import json
from io import StringIO
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from pipelines.models import Pipeline
from pipelines.schemas import PipelineOut
from pipelines.services import execution
from pipelines.types import RunResult
from tests.pipelines.built_ins import Asking, asking_pipeline, installed
from tests.pipelines.factories import PipelineFactory

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

AGAIN = RunResult(ok=False, error="too many turns", retriable=True, usage={"usd": 0.5})


def pipeline_verb(*arguments: str) -> dict:
    out = StringIO()
    call_command("pipeline", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def refused(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        call_command("pipeline", *arguments)
    return caught.value.returncode, str(caught.value)


@pytest.fixture
def failed(desk, server) -> Pipeline:
    pipeline, _ = asking_pipeline(desk)
    with installed(Asking([AGAIN], repeatable=True)):
        return execution.run(pipeline_id=pipeline.pk)


def test_show_says_what_each_stage_did_and_cost(failed):
    shown = pipeline_verb("show", f"pipeline-{failed.pk}")

    assert (shown["pipeline"], shown["status"]) == (str(failed.pk), "failed")
    assert "too many turns" in shown["error"]
    assert [(row["command"], row["status"], row["usage"]) for row in shown["stages"]] == [
        ("ask", "failed", {"usd": 0.5}), ("reply", "succeeded", {})
    ]  # fmt: skip
    assert [(row["origin"], row["status"]) for row in shown["mail"]] == [
        ("pipelines.pipeline", "accepted")
    ]
    assert shown["may_resume"]


@pytest.mark.parametrize("form", ["{0:.8}", "pipeline-{0:.8}", "{0:.13}"])
def test_the_start_of_an_id_is_enough(failed, form):
    assert pipeline_verb("show", form.format(str(failed.pk)))["pipeline"] == str(failed.pk)


def test_a_start_that_is_no_id_s_or_of_nothing_is_wrong_use(failed):
    other = "0000" if not str(failed.pk).startswith("0000") else "1111"
    assert refused("show", other) == (2, f"no pipelines begin with '{other}'")
    assert refused("show", "nope") == (2, "'nope' is neither an id nor the start of one")
    assert refused("show", "abc")[0] == 2


def test_show_reads_as_lines_for_people(failed):
    out = StringIO()
    call_command("pipeline", "show", str(failed.pk), stdout=out)

    lines = out.getvalue().splitlines()
    assert lines[0].startswith(f"pipeline-{failed.pk}  failed: ask: too many turns")
    assert any("1. ask  failed" in line for line in lines)
    assert lines[-1].startswith(f"  `pipeline retry {failed.pk}`")


def test_retry_puts_it_back_into_the_queue_once(failed):
    with installed(Asking(repeatable=True)):
        assert pipeline_verb("retry", str(failed.pk))["status"] == "queued"
        code, said = refused("retry", str(failed.pk))
        assert (code, "not-interrupted" in said) == (1, True)
        assert execution.run(pipeline_id=failed.pk).status == "completed"


def test_cancel_ends_it_and_says_by_whom(desk, server):
    pipeline, _ = asking_pipeline(desk)

    shown = pipeline_verb("cancel", str(pipeline.pk))

    assert shown["status"] == "cancelled"
    assert "operator:shell" in shown["error"]
    assert refused("cancel", str(pipeline.pk))[0] == 1


def test_what_is_no_pipeline_is_said(db):
    assert refused("show", str(uuid4()))[0] == 1
    assert refused("show", "seven")[0] == 2


def listed(*arguments: str) -> list[dict]:
    out = StringIO()
    call_command("pipeline", "list", *arguments, "--json", stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_list_names_the_newest_first_in_the_shape_of_the_api():
    older, newer = PipelineFactory(), PipelineFactory(status="interrupted")

    assert [row["id"] for row in listed()] == [str(newer.pk), str(older.pk)]
    assert listed()[0] == PipelineOut.of(newer).model_dump(mode="json")
    assert [row["id"] for row in listed("--limit", "1")] == [str(newer.pk)]
    assert [row["id"] for row in listed("--status", "interrupted")] == [str(newer.pk)]
    assert listed("--status", "failed") == []


def test_list_reads_as_a_line_each_for_people():
    row = PipelineFactory(status="failed", refused_rule="no-such-command")
    out = StringIO()
    call_command("pipeline", "list", stdout=out)

    (line,) = out.getvalue().splitlines()
    assert line.startswith(f"{row.pk}  failed ")
    assert line.endswith("  no-such-command")


@pytest.mark.parametrize("limit", ["0", "-1", "1001"])
def test_list_refuses_a_limit_that_makes_no_sense(limit):
    assert refused("list", "--limit", limit) == (2, "--limit is at least 1 and at most 1000")


def test_list_refuses_a_status_that_there_is_not_by_naming_those_there_are():
    with pytest.raises(CommandError) as caught:
        call_command("pipeline", "list", "--status", "odd")
    assert "'odd'" in str(caught.value)
    assert "interrupted" in str(caught.value)
    with pytest.raises(CommandError, match="invalid int value: 'many'"):
        call_command("pipeline", "list", "--limit", "many")
