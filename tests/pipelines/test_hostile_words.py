"""Hostile values as arguments, and programs that are not where they seem to be: real children."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines import arguments, specification
from pipelines.exceptions import ArgumentInvalid, CommandNotRunnable
from pipelines.models import Command
from pipelines.runners.cli import CliRunner
from pipelines.services import commands, verification
from pipelines.types import Job
from tests.pipelines.factories import OPERATOR, cli, script

PLACED = {"name": "word", "type": "string", "position": 1, "from_pipe": "/data"}
NAMED = {"name": "word", "type": "string", "from_pipe": "/data"}

#: Each must arrive as it is, as one element.
HARMLESS = [
    "plain",
    "",
    " ",
    "two words",
    "line\nline\r\n",
    "; touch here",
    "$(touch here) `touch here`",
    "'\"\\",
    "*?[a-z]~",
    "\u202etxt.exe \N{PILE OF POO}",
    "@file",
    "x" * 100_000,
]
#: Each would be an option where it stands first.
DASHED = ["-", "-x", "--", "--output=/etc/x", "-oProxyCommand=sh", "-\n"]


@pytest.fixture
def told(scripts: Path, tmp_path: Path):
    """What a real child was given, word by word."""
    program = script(scripts, "tell", """printf '%s\\0' "$@" """)

    def run(value: Any, argument: dict[str, Any], **fields: Any) -> list[str]:
        spec = specification.read(cli(binary=program, args=[argument], **fields))
        pipe = {"data": value, "files": []}
        job = Job(spec, arguments.complete(spec, {}, pipe), b"{}", "x", directory=tmp_path)
        result = CliRunner().run(job)
        assert result.ok, result.error
        assert not (tmp_path / "here").exists()
        return result.output.decode().split("\0")[:-1]

    return run


@pytest.mark.invariant(14)
@pytest.mark.fault("exec-02", "W19")
@pytest.mark.parametrize("value", HARMLESS)
def test_a_value_from_the_pipe_arrives_as_one_word(told, value: str):
    assert told(value, PLACED) == [value]
    assert told(value, PLACED, end_of_options=True) == ["--", value]
    assert told(value, NAMED) == [f"--word={value}"]


@pytest.mark.invariant(14)
@pytest.mark.fault("exec-02", "W19")
@pytest.mark.parametrize("value", DASHED)
def test_a_value_that_begins_with_a_dash_is_never_an_option(told, value: str):
    with pytest.raises(ArgumentInvalid):
        told(value, PLACED)
    assert told(value, PLACED, end_of_options=True) == ["--", value]
    assert told(value, NAMED) == [f"--word={value}"]


@pytest.mark.invariant(14)
@pytest.mark.fault("W19", "sister-36")
@pytest.mark.parametrize(
    "value", ["nul\0byte", "\ud800", "x" * 1_000_000, 5, True, ["a", "b"], {"a": "b"}]
)
def test_what_cannot_be_one_word_is_refused(told, value: Any):
    for argument in (PLACED, NAMED):
        with pytest.raises(ArgumentInvalid) as refused:
            told(value, argument)
        assert refused.value.field == "word"


def outcome(owner, binary: str) -> tuple[str, str]:
    loaded = commands.load_file(owner.write(cli(binary=binary)), by=OPERATOR)
    return str(loaded.outcome), loaded.reason


def may_run() -> str:
    try:
        verification.runnable(Command.objects.get(name="greet"))
    except CommandNotRunnable as error:
        return error.rule or ""
    return "runs"


@pytest.mark.one_database
@pytest.mark.django_db
@pytest.mark.parametrize("way", ["{bin}/../out/evil", "{bin}/../bin/link", "../out/evil", "{bin}"])
def test_dots_and_links_lead_nowhere_outside(owner, scripts: Path, tmp_path: Path, way: str):
    (tmp_path / "out").mkdir()
    script(tmp_path / "out", "evil", "true")
    (scripts / "link").symlink_to(tmp_path / "out" / "evil")
    assert outcome(owner, way.format(bin=scripts)) == ("rejected", "binary-not-allowed")
    script(scripts, "good", "true")
    assert outcome(owner, f"{scripts}/../bin/good") == ("loaded", "")


@pytest.mark.one_database
@pytest.mark.django_db
def test_a_program_that_became_a_link_out_is_refused_at_run(owner, scripts: Path, tmp_path: Path):
    program = Path(script(scripts, "good", "true"))
    (scripts / "alias").symlink_to(program)
    assert outcome(owner, str(scripts / "alias")) == ("loaded", "")
    assert may_run() == "runs"
    evil = script(tmp_path, "evil", "true")
    (scripts / "alias").unlink()
    (scripts / "alias").symlink_to(evil)
    assert may_run() == "binary-not-allowed"
    (scripts / "alias").unlink()
    (scripts / "alias").symlink_to(program)
    assert may_run() == "runs"
