"""`explain`: the exact shape of its answers, its exit codes, and life without a database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from guards.services import contacts, identities, permissions
from guards.services import keys as key_services
from guards.types import Rwx
from mail.management.commands.explain import Command
from tests.keys import Keys, public_key, sign_detached
from tests.mail.builders import part, plain, signed
from tests.mail.factories import OPERATOR

pytestmark = pytest.mark.one_database

ROOT = Path(__file__).parents[2]
NOW = datetime.now(UTC).replace(microsecond=0)


def explain(*arguments: object) -> list[dict]:
    out = StringIO()
    call_command("explain", "--json", *map(str, arguments), stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    file = tmp_path / "x.eml"
    file.write_bytes(plain("From: Alice <alice@Example.org>", "To: b@Y"))
    return file


@pytest.fixture
def signed_letter(tmp_path: Path, keys: Keys) -> Path:
    payload = part("text/plain", b"@claude run it\r\n\r\n> old\r\n")
    file = tmp_path / "s.eml"
    signature = sign_detached(keys.alice, payload, at=NOW)
    file.write_bytes(signed(payload, signature, "From: alice@example.org", "Subject: s"))
    return file


@pytest.fixture
def key_file(tmp_path: Path, keys: Keys) -> Path:
    file = tmp_path / "a=b@c.asc"
    file.write_bytes(public_key(keys.alice, armor=True))
    return file


@pytest.mark.django_db
def test_an_answer_has_exactly_the_documented_keys_in_their_order(letter: Path) -> None:
    (answer,) = explain(letter, "--contact", "alice@example.org=r--")
    assert answer == {
        "schema": "explain/1",
        "file": str(letter),
        "from": "alice@example.org",
        "from_name": "Alice",
        "to": ["b@y"],
        "cc": [],
        "subject": "",
        "date": None,
        "message_id": None,
        "text": "hello\n",
        "html": False,
        "attachments": [],
        "defects": [],
        "trust": {
            "level": "unverified",
            "reason": "unsigned",
            "evidence": {
                "signer": None,
                "signed_at": None,
                "hash": None,
                "status": [],
                "provider_headers": "absent",
                "notes": [],
            },
        },
        "permission": "r--",
        "decision": {"action": "surface", "verdict": "allow", "rule": "read-permitted"},
        "executable_text": None,
        "loop": {"answer": True, "reason": None},
    }
    assert list(answer)[:5] == ["schema", "file", "from", "from_name", "to"]


@pytest.mark.django_db
def test_verified_mail_with_x_is_executed(signed_letter: Path, key_file: Path, keys: Keys) -> None:
    (answer,) = explain(
        signed_letter, "--contact", "Alice@example.org=rwx", "--pin",
        f"alice@Example.org={key_file}", "--now", NOW.isoformat(),
    )  # fmt: skip
    evidence = answer["trust"]["evidence"]
    assert (answer["trust"]["level"], answer["trust"]["reason"]) == ("verified", "pinned-key")
    assert evidence["signer"] == keys.alice.fingerprint
    assert evidence["signed_at"] == NOW.isoformat()
    assert evidence["hash"] == "SHA256"
    assert evidence["status"] == ["GOODSIG", "VALIDSIG"]
    assert answer["decision"] == {
        "action": "execute", "verdict": "allow", "rule": "execute-permitted"
    }  # fmt: skip
    assert answer["executable_text"] == "@claude run it"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("identity", "rule"),
    [("claude@example.net", "recipient-not-bound"), ("agent@x", "recipient-not-bound")],
)
def test_an_unknown_identity_has_no_handle_and_must_be_named(
    signed_letter: Path, key_file: Path, identity: str, rule: str
) -> None:
    options = ("--contact", "alice@example.org=--x", "--pin", f"alice@example.org={key_file}")
    (answer,) = explain(signed_letter, *options, "--identity", identity)
    assert answer["decision"]["rule"] == rule
    assert explain(signed_letter, *options)[0]["decision"]["rule"] == "execute-permitted"


@pytest.mark.django_db
def test_a_known_identity_is_named_by_its_handle(signed_letter: Path, key_file: Path) -> None:
    identities.create_identity(handle="claude", email="agent@example.net", by=OPERATOR)
    options = ("--contact", "alice@example.org=rwx", "--pin", f"alice@example.org={key_file}")
    (answer,) = explain(signed_letter, *options, "--identity", "agent@example.net")
    assert answer["decision"]["rule"] == "execute-permitted"


@pytest.mark.django_db
def test_without_contacts_and_pins_the_database_counts(signed_letter: Path, keys: Keys) -> None:
    identity = identities.create_identity(handle="claude", email="agent@example.net", by=OPERATOR)
    identities.set_default(identity=identity, by=OPERATOR)
    contact = contacts.add_contact(address="alice@example.org", by=OPERATOR)
    permissions.grant(identity=identity, contact=contact, rwx=Rwx(True, True, True), by=OPERATOR)
    key_services.pin_key(contact=contact, key=public_key(keys.alice), by=OPERATOR)
    (answer,) = explain(signed_letter)
    assert answer["permission"] == "rwx"
    assert answer["decision"]["rule"] == "execute-permitted"
    (given,) = explain(signed_letter, "--contact", "bob@example.org=rwx")
    assert given["permission"] == "---"
    assert given["trust"]["reason"] == "unpinned-key"


@pytest.mark.django_db
def test_proton_headers_count_on_a_loopback_bridge_only(tmp_path: Path) -> None:
    file = tmp_path / "p.eml"
    file.write_bytes(
        plain("Subject: s", "X-Pm-Origin: internal", "X-Pm-Content-Encryption: end-to-end")
    )
    contact = ("--contact", "alice@example.org=rwx")
    (bridge,) = explain(file, *contact, "--provider", "proton-bridge", "--loopback")
    assert bridge["trust"]["reason"] == "proton-internal"
    assert bridge["trust"]["evidence"]["provider_headers"] == "honoured"
    assert bridge["executable_text"] == "s\n\nhello"
    for options in ((), ("--loopback",), ("--provider", "proton-bridge")):
        (other,) = explain(file, *contact, *options)
        assert other["trust"]["evidence"]["provider_headers"] == "ignored"
        assert other["executable_text"] is None


@pytest.mark.django_db
def test_a_pattern_may_read_and_the_longest_one_counts(letter: Path) -> None:
    given = ("--contact", "*@example.org=r--", "--contact", "alice@*=---")
    assert explain(letter, *given)[0]["permission"] == "r--"
    assert explain(letter, *given, "--contact", "alice@example.org=-w-")[0]["permission"] == "-w-"


@pytest.mark.django_db
def test_now_decides_what_is_too_old_and_which_keys_have_expired(
    signed_letter: Path, key_file: Path
) -> None:
    options = ("--contact", "alice@example.org=rwx", "--pin", f"alice@example.org={key_file}")
    rule = explain(signed_letter, *options, "--now", f"{NOW.year + 1}-01-01")[0]["decision"]["rule"]
    assert rule == "signature-too-old"
    reason = explain(signed_letter, *options, "--now", "2099-01-01T00:00:00Z")[0]["trust"]["reason"]
    assert reason == "expired-key"


@pytest.mark.django_db
def test_a_folder_is_read_recursively_and_sorted_one_object_a_line(tmp_path: Path) -> None:
    for name in ("b/z.eml", "a.eml", "b/a/x", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(os.urandom(200))
    answers = explain(tmp_path, "--contact", "a@b=---")
    files = [answer["file"] for answer in answers]
    assert files == sorted(str(tmp_path / name) for name in ("b/z.eml", "a.eml", "b/a/x", "c"))


@pytest.mark.django_db
def test_attachments_are_given_by_their_decoded_bytes(tmp_path: Path) -> None:
    file = tmp_path / "a.eml"
    file.write_bytes(
        plain("Content-Type: application/pdf", "Content-Transfer-Encoding: base64", text=b"SGk=")
    )
    (answer,) = explain(file)
    sha256 = "3639efcd08abb273b1619e82e78c29a7df02c1051b1820e99fc395dcaa3326b8"
    assert answer["attachments"] == [
        {"name": None, "type": "application/pdf", "size": 2, "sha256": sha256}
    ]
    assert answer["text"] is None


WRONG = [
    ("--contact", "alice@example.org=rw"),
    ("--contact", "alice@example.org"),
    ("--contact", "alice=rwx"),
    ("--contact", "*@example.org=rwx"),
    ("--contact", "[@example.org=r--"),
    ("--pin", "alice@example.org=/no/such/file"),
    ("--pin", "alice@example.org"),
    ("--pin", f"alice@example.org={__file__}"),
    ("--pin", f"*@example.org={__file__}"),
    ("--identity", "nobody"),
    ("--identity", ""),
    ("--contact", "alice@example.org=rwx", "bob@example.org=rw"),
    ("--now", "yesterday"),
    ("--provider", "gmail"),
    ("--unknown",),
    ("/no/such/file",),
]


@pytest.mark.django_db
def test_an_option_takes_several_values_and_leaves_the_paths(
    letter: Path, signed_letter: Path, key_file: Path
) -> None:
    answers = explain(
        signed_letter, "--contact", "bob@example.org=r--", "alice@example.org=rwx",
        "--pin", f"alice@example.org={key_file}", letter,
    )  # fmt: skip
    assert [answer["file"] for answer in answers] == [str(signed_letter), str(letter)]
    assert [answer["permission"] for answer in answers] == ["rwx", "rwx"]
    (alone,) = explain("--contact", "alice@example.org=r--", letter)
    assert alone["permission"] == "r--"


@pytest.mark.django_db
def test_an_answer_is_one_line_of_compact_json_in_ascii(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"\xff \xc3\xa9.eml")
    file.write_bytes(plain("Subject: \u00e9t\u00e9: a, b"))
    out = StringIO()
    call_command("explain", str(file), stdout=out)
    line = out.getvalue()
    assert line.isascii() and line.count("\n") == 1
    assert line.startswith('{"schema":"explain/1","file":"')
    assert json.loads(line)["file"] == str(file)
    assert json.loads(line)["subject"] == "\u00e9t\u00e9: a, b"


@pytest.mark.django_db
@pytest.mark.parametrize("now", ["0001-01-01", "1960-01-01T00:00:00Z", "9999-12-31T23:59:59"])
def test_any_moment_may_be_now(signed_letter: Path, key_file: Path, now: str) -> None:
    pin = f"alice@example.org={key_file}"
    (answer,) = explain(signed_letter, "--pin", pin, "--now", now)
    expected = "expired-key" if now.startswith("9") else "future-signature"
    assert answer["trust"]["reason"] == expected


@pytest.mark.django_db
@pytest.mark.parametrize("arguments", WRONG, ids=lambda one: " ".join(one)[:40])
def test_wrong_use_and_bad_files_exit_with_2(
    letter: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((CommandError, TypeError)) as failure:
        explain(letter, *arguments)
    code = getattr(failure.value, "returncode", 2)
    assert code == 2 or "argument" in str(failure.value)
    assert capsys.readouterr().out == ""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "explain", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_it_works_before_any_migration_and_prints_nothing_but_json(
    tmp_path: Path, letter: Path
) -> None:
    """In a terminal that takes ASCII alone, of any bytes under any name."""
    database = tmp_path / "none.sqlite3"
    noise = tmp_path / os.fsdecode(b"n\xff.eml")
    noise.write_bytes(os.urandom(5_000))
    done = run(
        "--json", str(letter), str(noise), DATABASE_URL=f"sqlite:///{database}",
        DATA_DIR=str(tmp_path / "d"), PYTHONIOENCODING="ascii",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    of_letter, of_noise = (json.loads(line) for line in done.stdout.splitlines())
    assert of_letter["permission"] == "---"
    assert of_noise["from"] is None
    assert not database.exists()


def test_an_empty_database_file_stays_empty(tmp_path: Path, letter: Path) -> None:
    database = tmp_path / "empty.sqlite3"
    database.touch()
    done = run(str(letter), DATABASE_URL=f"sqlite:///{database}", DATA_DIR=str(tmp_path / "d"))
    assert (done.returncode, done.stderr) == (0, "")
    assert database.stat().st_size == 0


def test_the_shell_sees_2_for_usage(letter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        Command().run_from_argv(["manage.py", "explain", str(letter), "--pin", "x"])
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (2, "")
    assert said.err


@pytest.mark.parametrize("arguments", [(), ("--json",), ("/no/such/file",)])
def test_without_a_file_it_was_used_wrongly(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError) as failure:
        call_command("explain", *arguments)
    assert failure.value.returncode == 2
    assert capsys.readouterr().out == ""


def test_without_gnupg_and_database_a_signature_is_unverified_and_the_exit_is_0(
    tmp_path: Path, signed_letter: Path, key_file: Path
) -> None:
    pin = f"alice@example.org={key_file}"
    done = run(
        str(signed_letter), "--contact", "alice@example.org=rwx", "--pin", pin, PATH="/none",
        DATABASE_URL="postgres://nobody@127.0.0.1:1/nothing", DATA_DIR=str(tmp_path / "d"),
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert answer["trust"]["reason"] == "verifier-unavailable"
    assert answer["decision"]["rule"] == "trust-too-low"
