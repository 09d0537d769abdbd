"""`pipeline dry-run`: plan, argument vectors and checks of a message that nothing is made of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from guards import documents
from guards.process import resolve_binary
from pipelines.models import Command, Mission, Pipeline
from pipelines.services import commands, rules, verification
from tests.keys import public_key, sign_detached
from tests.pipelines.factories import OPERATOR, Desk, cli, script

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


def call(*words: object) -> tuple[int, list[dict]]:
    out = StringIO()
    try:
        call_command("pipeline", "dry-run", "--json", *map(str, words), stdout=out)
    except CommandError as error:
        return error.returncode, []
    return 0, [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture
def dry(desk: Desk, tmp_path: Path):
    """The one answer for a mail of Alice with this text."""

    def run(text: str, *options: object, **fields: object) -> dict:
        file = tmp_path / "mail.eml"
        file.write_bytes(desk.raw(text, **fields))
        code, answers = call(file, "--identity", desk.identity.email, *options)
        assert (code, len(answers)) == (0, 1)
        return answers[0]

    return run


def rule(name: str = "greet", match: str = "greet", **args: object) -> None:
    rules.save_rule(
        name=name, match=match, calls=[{"command": name, "args": args}, {"command": "reply"}],
        by=OPERATOR,
    )  # fmt: skip


def test_it_has_the_published_shape_and_runs_and_stores_nothing(dry, owner, scripts, tmp_path):
    mark = tmp_path / "it-ran"
    program = script(scripts, "touching", f"touch {mark}")
    owner.install(
        binary=program,
        fixed_args=["always"],
        end_of_options=True,
        args=[
            {"name": "whom", "type": "string", "position": 1},
            {"name": "loud", "type": "boolean"},
            {"name": "title", "type": "string", "position": 2, "from_pipe": "/data/title"},
        ],
    )
    rule(whom="-Bob", loud=True)

    assert dry("please greet") == {
        "planner": "rule:greet",
        "calls": [
            {
                "command": "greet",
                "args": {"whom": "-Bob", "loud": True, "title": {"from_pipe": "/data/title"}},
                "runner": "cli",
                "argv": [program, "always", "--loud=true", "--", "-Bob",
                         {"from_pipe": "/data/title"}],
                "contract": None,
                "signature": "ok",
            }
        ],
        "refused": None,
    }  # fmt: skip
    assert not mark.exists()
    assert Pipeline.objects.count() == 0
    assert rules.Rule.objects.get().hits == 0


def test_steps_are_a_list_of_vectors(dry, owner):
    owner.install(steps=[{"binary": "echo", "fixed_args": ["a"]}, {"binary": "cat"}])
    rule()

    echo, cat = (str(resolve_binary(name)) for name in ("echo", "cat"))
    assert dry("greet")["calls"][0]["argv"] == [[echo, "a"], [cat]]


def test_a_claude_call_has_its_contract_and_no_vector(dry, owner):
    outcome = commands.load_file(
        owner.write(
            {
                "schema": "command/1", "name": "greet", "serial": 1, "prompt": "Sum it up.",
                "budget": {"rounds": 2, "max_usd": 1},
                "args": [
                    {"name": "topic", "type": "string"},
                    {"name": "text", "type": "string", "from_pipe": "/data/text"},
                ],
            }
        ),
        by=OPERATOR,
    )  # fmt: skip
    assert outcome.outcome == "loaded", outcome
    rule(topic="mail")

    (call,) = dry("greet")["calls"]
    assert (call["runner"], call["argv"], call["signature"]) == ("claude", None, "ok")
    contract = call["contract"]
    assert contract["command"] == "greet"
    assert contract["inputs"] == {"args": {"topic": "mail", "text": {"from_pipe": "/data/text"}}}
    assert contract["budget"]["rounds"] == 2
    assert not {"id", "ticket"} & set(contract)
    assert Mission.objects.count() == 0


def test_the_built_in_send_may_be_planned_and_others_not(dry):
    rules.save_rule(
        name="send",
        match="send",
        calls=[{"command": "send", "args": {"to": "bob@example.org", "subject": "hi"}}],
        by=OPERATOR,
    )
    answer = dry("send")
    assert (answer["calls"][0]["runner"], answer["refused"]) == ("built-in", None)
    rules.save_rule(name="send", match="send", calls=[{"command": "plan"}], by=OPERATOR)
    answer = dry("send")
    assert (answer["calls"], answer["refused"]["rule"]) == ([], "reserved-command")


def test_a_mail_that_may_not_execute_is_refused_by_its_decision_rule(dry, owner, desk, keys):
    owner.install()
    rule()
    assert dry("greet")["refused"] is None
    readable = dry("greet", "--contact", f"{desk.requester.email}=r--")
    assert (readable["planner"], readable["calls"]) == ("none", [])
    assert readable["refused"]["rule"] == "read-permitted"
    late = (timezone.now() + timedelta(days=3)).isoformat()
    assert dry("greet", "--now", late)["refused"]["rule"] == "signature-too-old"
    forged = dry("greet", key=keys.mallory)
    assert forged["refused"]["rule"] == "trust-too-low"


def test_contacts_and_pins_of_the_command_line_count_alone(dry, owner, desk, tmp_path):
    owner.install()
    rule()
    file = tmp_path / "alice.asc"
    file.write_bytes(public_key(desk.requester, armor=True))
    given = ["--contact", f"{desk.requester.email}=rwx", "--pin", f"{desk.requester.email}={file}"]

    assert dry("greet", *given)["planner"] == "rule:greet"
    assert dry("greet", *given[:2])["refused"]["rule"] == "trust-too-low"


@pytest.mark.fault("W5")
@pytest.mark.invariant(11)
def test_only_the_signed_text_is_planned_from(dry, owner):
    owner.install()
    rule()

    assert dry("good morning", subject="greet")["planner"] == "none"
    assert dry("good morning\n> greet")["planner"] == "none"
    assert dry("greet", subject="good morning")["planner"] == "rule:greet"


def test_without_a_rule_claude_is_named_and_not_asked(dry, settings):
    assert dry("greet") == {"planner": "none", "calls": [], "refused": None}
    settings.PLANNER = "claude"
    assert dry("greet") == {"planner": "claude", "calls": [], "refused": None}


def refused(answer: dict) -> tuple[str | None, str]:
    """The rule, and the signature of the first call."""
    signature = answer["calls"][0]["signature"] if answer["calls"] else ""
    return (answer["refused"] or {}).get("rule"), signature


def test_an_unknown_command_is_refused_and_the_others_are_listed(dry, owner):
    owner.install("other")
    rules.save_rule(
        name="two", match="greet", calls=[{"command": "absent"}, {"command": "other"}], by=OPERATOR
    )

    answer = dry("greet")
    assert refused(answer) == ("unknown-command", "ok")
    assert [call["command"] for call in answer["calls"]] == ["other"]


@pytest.mark.fault("sister-4", "sister-5")
def test_what_the_owner_did_not_sign_is_unsigned_and_says_how(dry, owner, keys, settings, tmp_path):
    rule()
    commands.load_file(owner.write(cli(), signature=""), by=OPERATOR)
    assert refused(dry("greet")) == ("unsigned", "missing")
    commands.load_file(
        owner.write(cli(), sign_detached(keys.mallory, documents.canonical(cli())).decode()),
        by=OPERATOR,
    )
    assert refused(dry("greet")) == ("unsigned", "wrong-key")
    owner.install()
    assert refused(dry("greet")) == (None, "ok")
    edited = {**cli(), "fixed_args": ["evil"]}
    Command.objects.update(document=edited)
    assert refused(dry("greet")) == ("unsigned", "invalid")
    Command.objects.update(document=edited, digest=documents.digest(edited))
    assert refused(dry("greet")) == ("unsigned", "invalid")
    Command.objects.update(document=cli(), digest=documents.digest(cli()))
    assert refused(dry("greet")) == (None, "ok")
    Command.objects.update(document=[])
    assert refused(dry("greet")) == ("unsigned", "invalid")
    Command.objects.update(document=cli())
    verification.forget()
    key_file = tmp_path / "expired.pgp"
    key_file.write_bytes(keys.expired.public)
    settings.OWNER_FINGERPRINT, settings.OWNER_KEY_FILE = keys.expired.fingerprint, str(key_file)
    assert refused(dry("greet")) == ("unsigned", "expired-key")
    settings.OWNER_FINGERPRINT = ""
    assert refused(dry("greet")) == ("unsigned", "operational")


@pytest.mark.invariant(13)
@pytest.mark.fault("W20")
def test_an_old_serial_put_back_and_a_command_past_its_date_are_refused(dry, owner):
    rule()
    old = owner.install(serial=1)
    owner.install(serial=2, valid_until="2036-01-01T00:00:00Z")
    assert refused(dry("greet")) == (None, "ok")
    Command.objects.update(
        document=old.document, digest=old.digest, signature=old.signature, serial=1
    )
    assert refused(dry("greet")) == ("stale-serial", "ok")
    Command.objects.update(digest=Command.objects.get().highest_digest, serial=2)
    assert refused(dry("greet")) == ("stale-serial", "ok")
    twin = cli(serial=2, description="another with the same serial")
    Command.objects.update(
        document=twin, digest=documents.digest(twin), signature=owner.sign(twin), serial=2
    )
    assert refused(dry("greet")) == ("stale-serial", "ok")
    owner.install(serial=3, valid_until="2020-01-01T00:00:00Z")
    assert refused(dry("greet")) == ("expired-command", "ok")


def test_arguments_that_do_not_fit_are_bad(dry, owner):
    declared = [{"name": "whom", "type": "string", "max_length": 5, "required": True}]
    owner.install(args=declared)
    for args, rule_name in [
        ({"whom": "Bob"}, None),
        ({}, "bad-argument"),
        ({"whom": "Bobbie"}, "bad-argument"),
        ({"whom": "Bob", "who": "x"}, "bad-argument"),
        ({"whom": 5}, "bad-argument"),
    ]:
        rule(**args)
        answer = dry("greet")
        assert refused(answer) == (rule_name, "ok"), args
        assert (answer["calls"][0]["argv"] is None) == (rule_name is not None)


def test_a_program_that_left_the_allow_list_is_refused(dry, owner, scripts, settings):
    program = script(scripts, "ours", "cat")
    owner.install(binary=program)
    rule()
    assert refused(dry("greet")) == (None, "ok")
    settings.ALLOWED_BINARIES = [
        place for place in settings.ALLOWED_BINARIES if place != str(scripts)
    ]
    answer = dry("greet")
    assert refused(answer) == ("binary-not-allowed", "ok")
    assert answer["calls"][0]["argv"] == [program]


def test_a_stored_message_is_tried_by_its_number(desk, owner):
    owner.install()
    rule()
    message = desk.message("greet", execution="taken")

    code, (answer,) = call(message.pk)
    assert (code, answer["planner"], answer["refused"]) == (0, "rule:greet", None)
    late = (timezone.now() + timedelta(days=3)).isoformat()
    code, (answer,) = call(message.pk, "--now", late)
    assert (code, answer["refused"]["rule"]) == (0, "signature-too-old")


def test_a_text_that_no_database_takes_is_planned_as_a_pipeline_would(dry, owner):
    owner.install(args=[{"name": "whom", "type": "string"}])
    rules.save_rule(
        name="greet",
        match=r"greet (?P<whom>.+)",
        kind="regex",
        calls=[{"command": "greet", "args": {"whom": {"group": "whom"}}}],
        by=OPERATOR,
    )
    answer = dry("greet a\0b")
    assert (answer["calls"][0]["args"], answer["refused"]) == ({"whom": "a\ufffdb"}, None)


def test_without_a_database_nothing_is_planned_and_the_exit_is_0(tmp_path, desk, keys):
    key_file = tmp_path / "alice.asc"
    key_file.write_bytes(public_key(desk.requester, armor=True))
    file = tmp_path / "mail.eml"
    file.write_bytes(desk.raw("greet"))
    sender = desk.requester.email
    done = subprocess.run(
        [
            *(sys.executable, "manage.py", "pipeline", "dry-run", str(file), "--json"),
            *("--contact", f"{sender}=rwx", "--pin", f"{sender}={key_file}"),
        ],
        capture_output=True,
        cwd=Path(__file__).parents[2],
        env={
            **{name: value for name, value in os.environ.items() if name != "DATABASE_URL"},
            "DATA_DIR": str(tmp_path / "nothing"),
        },
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"planner": "none", "calls": [], "refused": None}
    assert not (tmp_path / "nothing" / "countersign.sqlite3").exists()


def test_wrong_use_exits_with_2(desk, tmp_path):
    message = desk.message("greet")
    assert call()[0] == 2
    assert call(tmp_path / "absent.eml")[0] == 2
    assert call("999999")[0] == 2
    assert call(message.pk, "--identity", "a@b.example")[0] == 2
    file = tmp_path / "any.eml"
    file.write_bytes(b"\x00\xff any bytes at all")
    assert call(file, "--now", "soon")[0] == 2
    assert call(file, "--contact", "nobody")[0] == 2
    assert call(file)[0] == 0
