"""Command files come in one by one, each with a typed outcome; what is refused never runs."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from guards import documents
from guards.exceptions import DocumentNotSigned, InvalidInput, NotFound
from pipelines.exceptions import CommandNotRunnable
from pipelines.models import Command
from pipelines.services import commands, verification
from pipelines.types import LoadOutcome
from teams.models import Event
from tests.keys import sign_detached
from tests.pipelines.factories import OPERATOR, cli, script

pytestmark = pytest.mark.django_db


def load(path: Path) -> tuple[str, str | None, str, str | None]:
    outcome = commands.load_file(path, by=OPERATOR)
    return told(outcome)


def told(outcome: LoadOutcome) -> tuple[str, str | None, str, str | None]:
    cause = str(outcome.cause) if outcome.cause else None
    return str(outcome.outcome), cause, outcome.reason, outcome.field


def test_a_signed_command_is_loaded_and_may_run(owner):
    assert load(owner.write(cli())) == ("loaded", None, "", None)

    command = Command.objects.get(name="greet")
    assert command.signature_state == "ok"
    assert command.digest == documents.digest(cli())
    assert verification.runnable(command).name == "greet"
    assert Event.objects.filter(kind="command.loaded").count() == 1


@pytest.mark.fault("sister-4", "sister-5")
def test_an_unsigned_command_is_visible_and_never_runs(owner):
    assert load(owner.write(cli(), signature="")) == ("rejected", "signature", "missing", None)

    command = Command.objects.get(name="greet")
    assert command.signature_state == "missing"
    with pytest.raises(CommandNotRunnable) as refusal:
        verification.runnable(command)
    assert refusal.value.rule == "missing"
    assert Event.objects.filter(kind="command.refused").count() == 1


@pytest.mark.one_database
@pytest.mark.fault("sister-4")
def test_a_signature_over_other_bytes_is_invalid(owner):
    signature = owner.sign(cli())

    assert load(owner.write(cli(serial=2), signature)) == ("rejected", "signature", "invalid", None)
    assert Command.objects.get(name="greet").signature_state == "invalid"


@pytest.mark.one_database
def test_a_signature_of_another_key_is_of_the_wrong_key(owner, keys):
    signature = sign_detached(keys.mallory, documents.canonical(cli())).decode()

    assert load(owner.write(cli(), signature)) == ("rejected", "signature", "wrong-key", None)


@pytest.mark.one_database
def test_garbage_in_place_of_a_signature_is_invalid(owner):
    assert load(owner.write(cli(), "trust me"))[:3] == ("rejected", "signature", "invalid")


@pytest.mark.one_database
@pytest.mark.fault("W9")
def test_a_signing_subkey_of_the_owner_counts(owner, keys, settings, tmp_path):
    key_file = tmp_path / "subkeyed.pgp"
    key_file.write_bytes(keys.with_subkey.public)
    settings.OWNER_FINGERPRINT = keys.with_subkey.fingerprint
    settings.OWNER_KEY_FILE = str(key_file)
    owner.key = keys.with_subkey

    assert load(owner.write(cli()))[0] == "loaded"


@pytest.mark.one_database
def test_the_signature_is_looked_at_before_the_schema(owner):
    tampered = {**cli(), "serial": "one"}

    assert load(owner.write(tampered, owner.sign(cli()))) == (
        "rejected", "signature", "invalid", None
    )  # fmt: skip
    assert load(owner.write(tampered)) == ("rejected", "schema", "command-invalid", "serial")


@pytest.mark.one_database
def test_an_unknown_key_is_refused_although_it_is_signed(owner):
    assert load(owner.write(cli(colour="red"))) == (
        "rejected",
        "schema",
        "command-invalid",
        "colour",
    )


@pytest.mark.one_database
def test_a_file_that_is_no_mapping_is_refused_by_its_form(owner):
    path = owner.directory / "x.yaml"
    path.write_text("name: a\nname: b\n")

    assert load(path) == ("rejected", "form", "command-unreadable", "name")


@pytest.mark.one_database
def test_a_number_that_has_no_canonical_form_is_refused_by_its_form(owner):
    path = owner.directory / "x.json"
    path.write_text('{"name": "greet", "serial": 99999999999999999999}')

    assert load(path)[:2] == ("rejected", "form")


def test_a_file_that_cannot_be_read_is_an_operational_fault(owner):
    assert load(owner.directory / "absent.yaml")[:2] == ("operational", "file")


@pytest.mark.one_database
@pytest.mark.fault("sister-5")
def test_without_an_owner_nothing_is_loaded(owner, settings):
    path = owner.write(cli())
    settings.OWNER_FINGERPRINT = ""

    assert load(path)[:3] == ("operational", "owner-key", "no-owner-key")
    command = Command.objects.get(name="greet")
    assert command.signature_state == "operational"
    with pytest.raises(CommandNotRunnable) as refusal:
        verification.runnable(command)
    assert refusal.value.rule == "no-owner-key"


@pytest.mark.one_database
def test_two_owners_are_no_owner(owner, settings):
    path = owner.write(cli())
    settings.OWNER_HANDLE = "ada"

    assert load(path)[:3] == ("operational", "signature", "owner-key-invalid")


@pytest.mark.one_database
@pytest.mark.invariant(13)
@pytest.mark.fault("sister-3", "pgp-verify-35")
def test_an_expired_owner_key_stops_loading_and_running(owner, keys, settings, tmp_path):
    command = owner.install()
    key_file = tmp_path / "expired.pgp"
    key_file.write_bytes(keys.expired.public)
    settings.OWNER_FINGERPRINT = keys.expired.fingerprint
    settings.OWNER_KEY_FILE = str(key_file)

    assert load(owner.write(cli(serial=2)))[:3] == ("rejected", "signature", "expired-key")
    with pytest.raises(CommandNotRunnable) as refusal:
        verification.runnable(command)
    assert refusal.value.rule == "expired-key"


@pytest.mark.invariant(13)
@pytest.mark.fault("W20")
def test_a_serial_never_goes_back(owner):
    old, new = owner.write(cli(serial=1)), owner.write(cli(serial=2, fixed_args=["new"]))
    assert load(new)[0] == "loaded"

    assert load(old) == ("rejected", "serial", "serial-went-back", "serial")
    assert Command.objects.get(name="greet").serial == 2


@pytest.mark.one_database
@pytest.mark.fault("W20")
def test_the_same_serial_with_another_content_is_refused(owner):
    assert load(owner.write(cli(serial=2)))[0] == "loaded"

    assert load(owner.write(cli(serial=2, description="other"))) == (
        "rejected", "serial", "serial-reused", "serial"
    )  # fmt: skip


@pytest.mark.one_database
def test_the_same_document_may_be_loaded_again(owner):
    path = owner.write(cli())

    assert load(path)[0] == load(path)[0] == "loaded"


@pytest.mark.one_database
def test_a_refused_file_never_replaces_a_signed_command(owner):
    command = owner.install()

    load(owner.write(cli(serial=9, binary="sh"), signature=""))
    load(owner.write(cli(serial=9, colour="red")))

    command.refresh_from_db()
    assert (command.serial, command.signature_state) == (1, "ok")
    assert verification.runnable(command).steps[0].binary == "echo"


@pytest.mark.one_database
def test_a_program_outside_the_allow_list_is_refused_at_load(owner, tmp_path):
    program = script(tmp_path, "mine", "exit 0")

    assert load(owner.write(cli(binary=program)))[:3] == (
        "rejected", "binary", "binary-not-allowed"
    )  # fmt: skip


@pytest.mark.one_database
def test_a_link_out_of_an_allowed_directory_is_followed_and_refused(owner, scripts, tmp_path):
    program = script(tmp_path, "mine", "exit 0")
    (scripts / "linked").symlink_to(program)

    assert load(owner.write(cli(binary=str(scripts / "linked"))))[:2] == ("rejected", "binary")


@pytest.mark.one_database
def test_a_program_that_leaves_the_allow_list_is_refused_at_run(owner, scripts, settings):
    command = owner.install("mine", binary=script(scripts, "mine", "exit 0"))
    settings.ALLOWED_BINARIES = ["/usr/bin"]

    with pytest.raises(CommandNotRunnable) as refusal:
        verification.runnable(command)
    assert refusal.value.rule == "binary-not-allowed"


@pytest.mark.one_database
def test_a_directory_gives_one_outcome_a_file_in_order(owner):
    (owner.directory / "a.yaml").write_text("name: [\n")
    (owner.directory / "notes.txt").write_text("not a command")
    owner.write(cli("second"))

    outcomes = commands.load_directory(owner.directory, by=OPERATOR)

    assert [str(outcome.outcome) for outcome in outcomes] == ["rejected", "loaded"]
    with pytest.raises(NotFound):
        commands.load_directory(owner.directory / "a.yaml", by=OPERATOR)


@pytest.mark.one_database
def test_one_name_in_two_files_of_a_directory_is_refused(owner):
    owner.write(cli())
    owner.write(cli(serial=2))

    outcomes = commands.load_directory(owner.directory, by=OPERATOR)

    assert [str(outcome.outcome) for outcome in outcomes] == ["loaded", "rejected"]
    assert outcomes[1].field == "name"


def test_a_signature_made_elsewhere_is_taken_back(owner):
    load(owner.write(cli(), signature=""))

    command = commands.accept_signature(name="greet", signature=owner.sign(cli()), by=OPERATOR)

    assert command.signature_state == "ok"
    assert verification.runnable(command)


@pytest.mark.one_database
def test_a_wrong_signature_is_not_taken_back(owner, keys):
    command = owner.install()

    with pytest.raises(DocumentNotSigned):
        commands.accept_signature(
            name="greet",
            signature=sign_detached(keys.alice, documents.canonical(cli())).decode(),
            by=OPERATOR,
        )
    with pytest.raises(InvalidInput):
        commands.accept_signature(name="greet", signature=" ", by=OPERATOR)
    with pytest.raises(NotFound):
        commands.accept_signature(name="nobody", signature="x", by=OPERATOR)
    command.refresh_from_db()
    assert command.signature_state == "ok"


@pytest.mark.one_database
def test_writing_to_the_row_runs_nothing_that_the_owner_did_not_sign(owner):
    command = owner.install()
    document = {**command.document, "binary": "sh"}

    for changes in (
        {"document": document},
        {"document": document, "digest": documents.digest(document)},
        {"name": "other"},
        {"signature": "x"},
    ):
        Command.objects.filter(pk=command.pk).update(**changes)
        with pytest.raises(CommandNotRunnable):
            verification.runnable(Command.objects.get(pk=command.pk))
        command.save()


@pytest.mark.one_database
@pytest.mark.invariant(13)
def test_a_command_past_its_date_does_not_run(owner):
    past = (timezone.now() - timedelta(minutes=1)).isoformat(timespec="seconds")
    command = owner.install(valid_until=past)

    with pytest.raises(CommandNotRunnable) as refusal:
        verification.runnable(command)
    assert refusal.value.rule == "past-valid-until"


@pytest.mark.one_database
@pytest.mark.invariant(13)
@pytest.mark.fault("W20")
def test_an_older_document_put_back_into_the_row_does_not_run(owner):
    old = owner.install()
    owner.install(serial=2)
    Command.objects.filter(pk=old.pk).update(
        document=old.document, signature=old.signature, digest=old.digest, serial=1
    )

    with pytest.raises(CommandNotRunnable) as refusal:
        verification.runnable(Command.objects.get(pk=old.pk))
    assert refusal.value.rule == "superseded"


@pytest.mark.one_database
@pytest.mark.invariant(13)
def test_a_good_answer_is_remembered_for_a_minute_at_most(owner, monkeypatch):
    command = owner.install()
    verification.runnable(command)
    now = time.monotonic()
    monkeypatch.setenv("PATH", "/nowhere")  # gpg cannot be asked any more

    verification.runnable(command)
    monkeypatch.setattr(time, "monotonic", lambda: now + 59)
    verification.runnable(command)
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    with pytest.raises(CommandNotRunnable) as refusal:
        verification.runnable(command)
    assert refusal.value.rule in ("not-checked", "owner-key-invalid")


@pytest.mark.one_database
@pytest.mark.invariant(13)
def test_another_key_file_is_noticed_at_once(owner, keys, settings):
    command = owner.install()
    verification.runnable(command)
    Path(settings.OWNER_KEY_FILE).write_bytes(keys.mallory.public)

    with pytest.raises(CommandNotRunnable) as refusal:
        verification.runnable(command)
    assert refusal.value.rule == "owner-key-invalid"


@pytest.mark.invariant(13)
@pytest.mark.fault("W20")
def test_the_database_itself_keeps_the_highest_serial(owner):
    command = owner.install(serial=5)

    with pytest.raises(DatabaseError), transaction.atomic():
        Command.objects.filter(pk=command.pk).update(highest_serial=1)
    command.refresh_from_db()
    assert command.highest_serial == 5
