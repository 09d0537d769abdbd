"""A value from the pipe becomes one argument of a real program, or none: never an option."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.models import Pipeline
from pipelines.services import execution, intake, rules
from tests.pipelines.factories import OPERATOR, Desk, body, script

pytestmark = [pytest.mark.django_db, pytest.mark.fault("exec-02", "exec-04", "W19")]

#: Prints how many arguments it got, then each with its end marked.
SHOWS = 'printf "%s\\n" "$#"; for word in "$@"; do printf "[%s]" "$word"; done'


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def hand_on(desk: Desk, owner, server, scripts, ran: Path):
    """A stage puts this value into the pipe, the next one has it as its argument."""
    shows = script(scripts, "shows", f'touch "{ran}"; {SHOWS}')

    def run(value: object, **argument: object) -> Pipeline:
        text = (scripts / "value.json").write_text(json.dumps(value, ensure_ascii=True))
        assert text
        says = script(scripts, "says", f'exec cat "{scripts / "value.json"}"')
        owner.install("says", binary=says, output_schema=...)
        fields = {"end_of_options": argument.pop("end_of_options", False)}
        declared = {"name": "word", "type": "string", "from_pipe": "/data", "required": True}
        named = {**declared, "name": "named"}
        owner.install("shows", binary=shows, args=[named, {**declared, **argument}], **fields)
        calls = [{"command": "says"}, {"command": "shows"}]
        rules.save_rule(name="hostile", match="hostile", calls=calls, by=OPERATOR)
        pipeline = intake.take_in(message_id=desk.message("hostile").pk)
        assert pipeline is not None
        return execution.run(pipeline_id=pipeline.pk)

    return run


@pytest.mark.one_database
@pytest.mark.invariant(14)
@pytest.mark.parametrize(
    "value",
    [
        " \N{FULLWIDTH HYPHEN-MINUS}-output=x \N{MINUS SIGN}r\nand a second line\r\n--output=x "
        "a'b\"c;touch /tmp/x $(id) `id` && true | cat > /dev/null * ?",
        "x" * 100_000,
    ],
    ids=["hostile", "long"],
)
def test_text_of_any_kind_is_one_argument_as_it_is(hand_on, value):
    shown = hand_on(value, position=1)

    assert shown.status == "completed", shown.error
    stage = shown.stages.get(command="shows")
    assert stage.argv[0][1:] == [f"--named={value}", value]
    assert stage.output[:19_000] == f"2\n[--named={value}][{value}]"[:19_000]


@pytest.mark.one_database
@pytest.mark.invariant(14)
@pytest.mark.parametrize("value", ["-rf", "--upload-p=sh", "--"])
def test_what_begins_with_a_dash_is_refused_in_a_position_and_never_runs(
    hand_on, server, ran, value
):
    pipeline = hand_on(value, position=1)

    assert pipeline.status == "failed"
    stage = pipeline.stages.get(command="shows")
    assert (stage.status, stage.started_at, stage.argv) == ("failed", None, [])
    assert "begins with '-'" in stage.error
    assert not ran.exists()
    assert value not in body(server.sent[0].payload).split("pipeline-")[0].split()


@pytest.mark.one_database
@pytest.mark.invariant(14)
def test_behind_the_end_of_options_the_same_value_is_harmless(hand_on):
    """The control: the refusal above is about options, not about the value."""
    placed = hand_on("--upload-p=sh", position=1, end_of_options=True)

    assert placed.status == "completed", placed.error
    stage = placed.stages.get(command="shows")
    assert stage.argv[0][1:] == ["--named=--upload-p=sh", "--", "--upload-p=sh"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param("nul \0 inside", "NUL", id="nul"),
        pytest.param(
            "y" * 999_000, "larger than 131072 bytes", id="1mb", marks=pytest.mark.one_database
        ),
        pytest.param(["-r", "f"], "must be string", id="list", marks=pytest.mark.one_database),
        pytest.param(None, "nothing at /data", id="null", marks=pytest.mark.one_database),
    ],
)
def test_what_cannot_be_one_argument_fails_the_stage_and_is_never_cut(hand_on, ran, value, reason):
    pipeline = hand_on(value)

    assert pipeline.status == "failed"
    assert reason in pipeline.error
    assert not ran.exists()
