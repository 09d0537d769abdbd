"""`load_commands`, `command canonical|sign|verify`, `run_pipelines`, `recover_pipelines`."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from guards import documents
from pipelines import reading
from pipelines.models import Command, Pipeline
from pipelines.services import drafts, rules, verification
from tests.keys import sign_detached
from tests.pipelines.factories import OPERATOR, PipelineFactory, StageFactory, cli

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

YAML = """\
# What the agent says first.
schema: command/1
name: greet
serial: 1
runner: cli
binary: echo          # from the allow-list
fixed_args: [hello]
output_schema: text
valid_until: 2036-01-01T00:00:00Z
args:
  - name: whom
    type: string
    max_length: 80
"""


def call(*words: str) -> tuple[int, list[dict]]:
    """Exit code and JSON answers."""
    out = StringIO()
    try:
        call_command(*words, "--json", stdout=out, stderr=StringIO())
    except SystemExit as exit:
        return int(exit.code or 0), answers(out)
    except CommandError as error:
        return error.returncode, answers(out)
    return 0, answers(out)


def answers(out: StringIO) -> list[dict]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture
def file(owner) -> Path:
    path = owner.directory / "greet.yaml"
    path.write_text(YAML)
    return path


def test_a_command_is_signed_in_its_file_verified_and_loaded(owner, file):
    key = owner.key

    code, signed = call(
        "command", "sign", str(file), "--home", str(key.home), "--key", key.fingerprint
    )
    assert (code, signed[0]["signed"]) == (0, True)
    assert file.read_text().startswith(YAML)
    code, verified = call("command", "verify", str(file))
    assert (code, verified[0]["ok"], verified[0]["reason"]) == (0, True, None)
    code, loaded = call("load_commands", str(owner.directory))
    assert (code, loaded[0]["outcome"], loaded[0]["digest"]) == (0, "loaded", signed[0]["digest"])
    code, verified = call("command", "verify", "greet")
    assert (code, verified[0]["ok"]) == (0, True)
    assert verification.runnable(Command.objects.get()).steps[0].fixed_args == ("hello",)


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": "command/1", "name": "greet", "serial": 1, "runner": "cli", "binary": "echo"}',
        f'{YAML}"signature": old',
        f"{YAML}...",
        f'{YAML}description: "a\nsignature: b"',
    ],
)
def test_a_file_is_signed_whatever_its_layout_and_says_the_same(owner, file, text):
    file.write_text(f"{text}\n")
    before, _ = reading.split_signature(reading.read_file(file))
    key = owner.key
    call("command", "sign", str(file), "--home", str(key.home), "--key", key.fingerprint)
    assert call("command", "verify", str(file))[0] == 0
    assert reading.split_signature(reading.read_file(file))[0] == before


def test_comments_and_layout_may_change_under_a_signature(owner, file):
    key = owner.key
    call("command", "sign", str(file), "--home", str(key.home), "--key", key.fingerprint)
    file.write_text(
        file.read_text().replace("# from the allow-list", "").replace("[hello]", "\n- hello")
    )

    assert call("command", "verify", str(file))[0] == 0
    file.write_text(file.read_text().replace("- hello", "- goodbye"))
    code, verified = call("command", "verify", str(file))
    assert (code, verified[0]["ok"], verified[0]["reason"]) == (1, False, "invalid")


def test_the_bytes_to_sign_elsewhere_are_the_canonical_ones(owner, file, tmp_path):
    code, told = call("command", "canonical", str(file))
    assert code == 0
    content = told[0]["canonical"].encode()
    signature = tmp_path / "greet.asc"
    signature.write_bytes(sign_detached(owner.key, content))

    code, signed = call("command", "sign", str(file), "--signature", str(signature))

    assert (code, signed[0]["digest"]) == (0, told[0]["digest"])
    assert call("command", "verify", str(file))[0] == 0


def test_a_row_takes_a_signature_from_elsewhere(owner, tmp_path):
    from pipelines.services import commands

    commands.load_file(owner.write(cli(), signature=""), by=OPERATOR)
    signature = tmp_path / "greet.asc"
    signature.write_text(owner.sign(cli()))

    assert call("command", "sign", "greet", "--signature", str(signature))[0] == 0
    assert Command.objects.get().signature_state == "ok"


def test_canonical_prints_exact_bytes_for_people_too(owner, file, capfdbinary):
    """To the real standard output, past every wrapper of text."""
    assert not call_command("command", "canonical", str(file))

    assert capfdbinary.readouterr().out == documents.canonical(reading.read_file(file))


def test_an_unusable_request_is_refused_before_anything_is_signed(owner, file, tmp_path):
    assert call("command", "sign", str(file))[0] == 2
    assert call("command", "verify", str(tmp_path / "absent.yaml"))[0] == 2
    assert call("command", "verify", "nobody")[0] == 1
    assert call("load_commands", str(tmp_path / "absent"))[0] == 2
    file.write_text(YAML + "shell: true\n")
    code, _ = call(
        "command", "sign", str(file), "--home", str(owner.key.home), "--key", owner.key.fingerprint
    )
    assert code == 1
    assert "signature" not in file.read_text()


def test_a_directory_with_a_refused_file_ends_with_one(owner, file):
    owner.write(cli("other"))

    code, told = call("load_commands", str(owner.directory))

    assert code == 1
    assert {answer["name"]: answer["outcome"] for answer in told} == {
        "greet": "rejected", "other": "loaded"
    }  # fmt: skip
    assert next(answer for answer in told if answer["name"] == "greet")["cause"] == "signature"


@pytest.mark.parametrize("runner", ["cli", "claude"])
def test_a_new_command_is_signed_and_loaded_as_it_is_begun(owner, settings, runner):
    path = owner.directory / "fresh.yaml"
    key = owner.key
    assert call("command", "new", "fresh", "--runner", runner, "--output", str(path))[0] == 0
    assert call("command", "new", "fresh", "--output", str(path))[0] == 2
    assert call("command", "new", "Fresh!")[0] == call("command", "new", "reply")[0] == 2
    call("command", "sign", str(path), "--home", str(key.home), "--key", key.fingerprint)
    assert call("load_commands", str(owner.directory))[0] == 0
    _, (again,) = call("command", "new", "fresh", "--runner", runner)
    assert "serial: 2 " in again["text"]


def test_an_exported_file_is_the_signed_one(owner, tmp_path):
    command = owner.install(fixed_args=["yes", "a: b"], description="two\nlines\n")
    path = tmp_path / "out.yaml"
    assert call("command", "export", "greet", "--output", str(path))[0] == 0
    assert call("command", "export", "nobody")[0] == 1
    assert call("command", "verify", str(path))[0] == 0
    Command.objects.all().delete()
    assert call("load_commands", str(tmp_path))[1][0]["outcome"] == "loaded"
    assert Command.objects.get().digest == command.digest


def test_a_draft_of_the_console_is_what_is_signed_and_not_what_is_verified(owner, tmp_path):
    owner.install()
    draft = cli(serial=2, fixed_args=["hi"])
    drafts.save(text=json.dumps(draft), name="greet", by=OPERATOR)
    _, (told,) = call("command", "canonical", "greet")
    assert told["canonical"].encode() == documents.canonical(draft)
    assert call("command", "verify", "greet")[0] == 0
    signature = tmp_path / "greet.asc"
    signature.write_text(owner.sign(draft))
    assert call("command", "sign", "greet", "--signature", str(signature))[0] == 0
    row = Command.objects.get()
    assert (row.document, row.draft, row.highest_serial) == (draft, None, 2)


@pytest.mark.fault("sister-4", "sister-5", "W20")
def test_each_file_is_reported_by_the_check_that_refused_it(owner, keys, settings):
    settings.OWNER_FINGERPRINT, fingerprint = "", settings.OWNER_FINGERPRINT
    owner.write(cli("a"))
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("load_commands", str(owner.directory), stdout=out)
    assert out.getvalue().startswith("operational (owner-key) ")
    settings.OWNER_FINGERPRINT = fingerprint
    owner.write(cli("b", colour="red"), signature="")
    owner.write(cli("c", colour="red"))
    owner.write(cli("d", binary="/nowhere/at/all"))
    owner.write(cli("e", binary="git", fixed_args=["-c", "x=y"]))
    owner.install("f", serial=4)
    owner.write(cli("f", serial=3))
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("load_commands", str(owner.directory), stdout=out)
    said = [line.split(" /")[0].split("  ")[0] for line in out.getvalue().splitlines()]
    assert said == [
        "loaded",
        "rejected (signature)",
        "rejected (schema)",
        "rejected (binary)",
        "rejected (option)",
        "loaded",
        "rejected (schema)",
    ]


def test_run_pipelines_takes_in_and_carries_out_what_is_due(owner, desk, server):
    owner.install()
    rules.save_rule(name="greet", match="greet", calls=[{"command": "greet"}], by=OPERATOR)
    desk.message("greet")

    code, told = call("run_pipelines")

    assert (code, [answer["status"] for answer in told]) == (0, ["completed"])
    assert len(server.sent) == 1


def test_recover_pipelines_tells_how_many_were_interrupted(desk, server):
    pipeline = PipelineFactory(
        message=desk.message("x", execution="taken"),
        status="running",
        lease_until="2020-01-01T00:00Z",
    )
    StageFactory(pipeline=pipeline)

    assert call("recover_pipelines") == (0, [{"interrupted": 1}])
    assert call("recover_pipelines") == (0, [{"interrupted": 0}])
    assert Pipeline.objects.get().status == "interrupted"


def test_a_signature_of_somebody_else_is_refused_with_the_owners_fingerprint(
    owner, keys, capsys, tmp_path: Path
):
    document = cli("greet")
    signature = sign_detached(keys.mallory, documents.canonical(document)).decode()
    path = tmp_path / "greet.json"
    path.write_text(json.dumps(document | {"signature": signature}))
    out, err = StringIO(), StringIO()
    with pytest.raises((SystemExit, CommandError)) as ended:
        call_command("command", "verify", str(path), stdout=out, stderr=err)
    said = f"{out.getvalue()}{err.getvalue()}{ended.value}{capsys.readouterr()}"
    assert f"the owner's key {owner.key.fingerprint} has not made it" in said
