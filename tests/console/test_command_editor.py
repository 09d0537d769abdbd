"""Commands written in the console: drafts, their check, the bytes to sign, the way back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db.models import JSONField, Value
from django.test import Client
from django.urls import reverse

from guards import documents
from pipelines import reading, specification, writing
from pipelines.models import Command
from pipelines.services import commands, verification
from tests.console.test_get_is_safe import state_of_the_house
from tests.keys import sign_detached
from tests.pipelines.conftest import owner
from tests.pipelines.factories import OPERATOR, cli

__all__ = ["owner"]

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

TEXT = """\
# By hand.
schema: command/1
name: greet
serial: 2
runner: cli
binary: echo
fixed_args: [hello, world]
output_schema: text
"""


def address(word: str, command: Command | None = None) -> str:
    return reverse(f"admin:pipelines_command_{word}", args=[command.pk] if command else [])


def check(console: Client, text: str, name: str = "") -> dict:
    answer = console.post(address("check"), {"text": text, "name": name})
    assert answer.status_code == 200
    return answer.json()


def bytes_to_sign(console: Client, command: Command) -> bytes:
    answer = console.get(address("canonical", command))
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment; filename=")
    return answer.content


def test_a_new_command_is_written_signed_and_runs(console: Client, owner):
    assert "new-command" in console.get(address("add")).content.decode()
    answer = console.post(address("add"), {"text": TEXT})
    command = Command.objects.get()
    assert answer["Location"] == address("change", command)
    assert (command.draft_text, command.draft_by, command.highest_serial) == (
        TEXT, "operator:olga", 0
    )  # fmt: skip
    with pytest.raises(Exception, match="signature"):
        verification.runnable(command)

    content = bytes_to_sign(console, command)
    assert content == documents.canonical(reading.read_text(TEXT.encode()))
    page = console.get(address("change", command)).content.decode()
    assert hashlib.sha256(content).hexdigest() in page
    signature = SimpleUploadedFile("greet.asc", sign_detached(owner.key, content))
    console.post(address("sign", command), {"signature_file": signature, "signature": ""})

    command.refresh_from_db()
    assert (command.draft, command.draft_text, command.serial) == (None, "", 2)
    assert verification.runnable(command).steps[0].fixed_args == ("hello", "world")


def test_a_draft_changes_nothing_until_it_is_signed(console: Client, owner, keys):
    command = owner.install(fixed_args=["hello"])
    console.post(address("edit", command), {"text": TEXT})
    command.refresh_from_db()
    assert command.draft["serial"] == 2 and command.document["serial"] == 1
    assert verification.runnable(command).steps[0].fixed_args == ("hello",)
    page = console.get(address("change", command)).content.decode()
    assert "+    &quot;world&quot;" in page and "-  &quot;serial&quot;: 1" in page

    forged = sign_detached(keys.mallory, bytes_to_sign(console, command)).decode()
    old = command.signature
    for wrong in (forged, old, "", "no signature"):
        console.post(address("sign", command), {"signature": wrong})
        command.refresh_from_db()
        assert command.draft is not None and command.document["serial"] == 1
    binary = SimpleUploadedFile("greet.sig", b"\x88\x75\xff")
    shown = console.post(address("sign", command), {"signature_file": binary}, follow=True)
    assert "is not an armoured signature" in shown.content.decode()
    good = sign_detached(owner.key, bytes_to_sign(console, command)).decode()
    console.post(address("sign", command), {"signature": good})
    command.refresh_from_db()
    assert (command.draft, command.document["serial"]) == (None, 2)


def test_the_check_says_what_is_wrong_where(console: Client, owner):
    command = owner.install(serial=3)
    good = TEXT.replace("serial: 2", "serial: 4")
    report = check(console, good, "greet")
    document = reading.read_text(good.encode())
    assert (report["ok"], report["problems"]) == (True, [])
    assert (report["serial"], report["suggested_serial"]) == (4, 4)
    assert report["digest"] == documents.digest(document)
    assert "+  &quot;serial" not in report["difference"] and '"serial": 4' in report["difference"]

    def first(text: str, name: str = "greet") -> str:
        report = check(console, text, name)
        assert not report["ok"]
        return report["problems"][0]["field"]

    assert first(TEXT) == "serial"
    assert first(good.replace("name: greet", "name: other")) == "name"
    assert first(good.replace("echo", "/nowhere/echo")) == "binary"
    assert first(good.replace("output_schema", "output")) == "output"
    assert first(good.replace("binary: echo", "binary: git")) == "fixed_args[0]"
    assert first(good, "") == "name"
    assert first("- a list", "") == ""
    assert first("serial: &anchor 2", "") == ""
    assert Command.objects.get(pk=command.pk).draft is None


def test_what_would_turn_a_line_around_is_shown_by_its_number(console: Client, owner):
    command = owner.install(description="first")
    hostile = json.dumps(cli(serial=2, description="a\u202eb\u200bc\u2028d"))
    difference = check(console, hostile, "greet")["difference"]
    assert '+  "description": "a\\u202eb\\u200bc\\u2028d",' in difference.split("\n")
    console.post(address("edit", command), {"text": hostile})
    page = console.get(address("change", command)).content.decode()
    assert "a\\u202eb" in page.split("What signing it would change")[1].split("</pre>")[0]


def test_a_text_without_a_usable_document_is_not_kept_and_not_lost(console: Client, owner):
    for text in ("name: [", "name: reply\nserial: 1", "name: ../x", "serial: 1"):
        answer = console.post(address("add"), {"text": text})
        assert answer.status_code == 200
        assert text.split("\n")[0] in answer.content.decode()
    assert Command.objects.count() == 0
    command = owner.install()
    answer = console.post(address("add"), {"text": TEXT})
    assert "there is a command greet already" in answer.content.decode()
    answer = console.post(address("edit", command), {"text": TEXT.replace("greet", "other")})
    assert "this is the draft of greet" in answer.content.decode()
    assert list(Command.objects.values_list("name", "draft")) == [("greet", None)]


def test_a_faulty_draft_may_be_kept_and_never_be_signed(console: Client, owner):
    console.post(address("add"), {"text": TEXT + "shell: true\n"})
    command = Command.objects.get()
    signature = sign_detached(owner.key, bytes_to_sign(console, command)).decode()
    console.post(address("sign", command), {"signature": signature})
    command.refresh_from_db()
    assert command.draft is not None and command.signature_state != "ok"
    console.post(address("discard", command))
    assert Command.objects.count() == 0


def test_a_draft_is_thrown_away_and_what_was_signed_stays(console: Client, owner):
    command = owner.install()
    console.post(address("edit", command), {"text": TEXT})
    console.post(address("discard", command))
    command.refresh_from_db()
    assert (command.draft, command.signature_state) == (None, "ok")


def test_the_signed_file_can_be_taken_away_and_loaded_again(console: Client, owner):
    command = owner.install(
        description="Says: hello\n  twice #1", fixed_args=["yes", "1e5", "-x", " a", "ü\t", ""]
    )
    content = console.get(address("export", command)).content
    file = owner.directory / "again.yaml"
    file.write_bytes(content)
    Command.objects.all().delete()
    assert commands.load_file(file, by=OPERATOR).outcome == "loaded"
    assert Command.objects.get().document == command.document


@pytest.mark.invariant(13)
@pytest.mark.parametrize("written", [[], None, "x", {"name": "greet", "serial": 2**60}])
def test_a_row_that_holds_no_document_has_a_page_and_nothing_to_take(
    console: Client, owner, written
):
    command = owner.install()
    Command.objects.update(document=Value(written, JSONField()))
    assert console.get(address("change", command)).status_code == 200
    for word in ("edit", "canonical", "export"):
        assert console.get(address(word, command))["Location"] == address("change", command)


@pytest.mark.parametrize(
    "fields", [{"steps": 7}, {"binary": "a", "fixed_args": 7}, {"args": 5}, {"steps": [3]}]
)
def test_a_file_that_fits_no_schema_is_shown_all_the_same(console: Client, owner, fields):
    commands.load_file(owner.write({"name": "greet", **fields}, signature=""), by=OPERATOR)
    page = console.get(address("change", Command.objects.get()))
    assert page.status_code == 200 and "Nobody has signed it" in page.content.decode()


def test_the_line_to_sign_with_is_made_of_no_foreign_words(console: Client, owner):
    hostile = {"name": "greet", "serial": "1.canonical; touch /tmp/it-ran #"}
    commands.load_file(owner.write(hostile, signature=""), by=OPERATOR)
    command = Command.objects.get()
    page = console.get(address("change", command)).content.decode()
    assert "--detach-sign greet-0.canonical<" in page
    answer = console.get(address("canonical", command))
    assert answer["Content-Disposition"] == 'attachment; filename="greet-0.canonical"'


def test_onlookers_may_take_bytes_and_change_nothing(onlooker: Client, client: Client, owner):
    command = owner.install()
    assert onlooker.get(address("canonical", command)).status_code == 200
    assert onlooker.get(address("export", command)).status_code == 200
    for word, row in (("add", None), ("edit", command)):
        assert onlooker.get(address(word, row)).status_code == 403
        assert onlooker.post(address(word, row), {"text": TEXT}).status_code == 403
    assert onlooker.post(address("check"), {"text": TEXT}).status_code == 403
    assert onlooker.post(address("discard", command)).status_code == 403
    for word in ("edit", "canonical", "export"):
        assert client.get(address(word, command)).status_code == 302
    assert Command.objects.get().draft is None


@pytest.mark.invariant(21)
def test_looking_and_checking_change_nothing(console: Client, owner):
    command = owner.install()
    console.post(address("edit", command), {"text": TEXT})
    before = state_of_the_house()
    for word in ("edit", "canonical", "export", "change"):
        assert console.get(address(word, command)).status_code == 200
        assert console.head(address(word, command)).status_code == 200
    console.get(address("add"))
    check(console, TEXT, "greet")
    assert state_of_the_house() == before


def test_the_check_is_a_post_with_a_token(console: Client, operator, owner):
    assert console.get(address("check")).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator)
    assert strict.post(address("check"), {"text": TEXT}).status_code == 403
    script = console.get(address("add")).content.decode()
    assert "command_editor.js" in script


def test_the_form_of_a_command_is_published(client: Client):
    answer = client.get("/schemas/command-1.json")
    assert answer.status_code == 200
    root = Path(__file__).parents[2]
    assert answer.json() == json.loads((root / "pipelines/command.schema.json").read_text())


@pytest.mark.parametrize("runner", ["cli", "claude"])
def test_a_template_is_whole_as_it_stands(runner: str):
    document = reading.read_text(writing.command_template("fresh", runner=runner).encode())
    assert specification.read(document).runner == runner
