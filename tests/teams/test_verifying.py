"""`verify_log` names the first row that was changed, reordered, removed or cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.utils import timezone

from guards import triggers
from teams import chain, selectors
from teams.models import Checkpoint, Event, LogPosition
from teams.services import checkpoints, verification
from teams.types import LogHead
from tests.teams.conftest import Fill

pytestmark = pytest.mark.django_db

Tamper = Callable[[], object]


@pytest.fixture
def log(fill: Fill) -> None:
    """Ten events, the first six under a signed checkpoint."""
    fill(6)
    checkpoints.sign_head()
    fill(4, project="apollo")


def sql(statement: str, *values: object) -> None:
    """What somebody with the database in hands does: no trigger stands in the way."""
    triggers.lift("teams")
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def swap(one: int, other: int) -> None:
    for old, new in ((one, 900), (other, one), (900, other)):
        sql("UPDATE teams_event SET seq = %s WHERE seq = %s", new, old)


def rewrite_from(seq: int) -> None:
    """Change one row and compute the whole chain behind it anew, head included."""
    sql("UPDATE teams_event SET actor = 'operator:eve' WHERE seq = %s", seq)
    previous = Event.objects.get(seq=seq - 1).hash if seq > 1 else chain.ORIGIN
    for event in Event.objects.filter(seq__gte=seq).order_by("seq"):
        facts = Event.facts.field.get_prep_value(event.facts)  # type: ignore[attr-defined]
        digest = chain.link(
            event.seq,
            chain.moment(event.at),
            event.kind,
            event.subject_type,
            event.subject_id,
            event.actor,
            event.project,
            event.project_seq,
            facts,
            previous,
        )
        sql(
            "UPDATE teams_event SET prev_hash = %s, hash = %s WHERE seq = %s",
            previous,
            digest,
            event.seq,
        )
        previous = digest
    LogPosition.objects.update(hash=previous)


def append_by_hand(**changes: Any) -> Event:
    """A row that ties to the last one, without the head row moving."""
    last = Event.objects.order_by("seq").last()
    event = Event(
        **{
            "seq": last.seq + 1 if last else 1,
            "at": timezone.now(),
            "kind": "project.changed",
            "subject_type": "t",
            "subject_id": "1",
            "actor": "eve",
            "facts": {},
            "prev_hash": last.hash if last else chain.ORIGIN,
            **changes,
        }
    )
    event.hash = chain.link(
        event.seq,
        chain.moment(event.at),
        event.kind,
        "t",
        "1",
        "eve",
        "",
        None,
        "{}",
        event.prev_hash,
    )
    event.save(force_insert=True)
    return event


TAMPERED: dict[str, tuple[Tamper, int]] = {
    "an actor": (lambda: sql("UPDATE teams_event SET actor = 'eve' WHERE seq = 3"), 3),
    "a time": (lambda: shift_time(4), 4),
    "facts": (lambda: sql("UPDATE teams_event SET facts = '{}' WHERE seq = 5"), 5),
    "facts that are no JSON": (lambda: sql("UPDATE teams_event SET facts = 'x' WHERE seq = 5"), 5),
    "white space in facts": (
        lambda: sql("UPDATE teams_event SET facts = facts || ' ' WHERE seq = 2"),
        2,
    ),
    "a hash": (lambda: sql("UPDATE teams_event SET hash = %s WHERE seq = 7", "0" * 64), 7),
    "the first row removed": (lambda: sql("DELETE FROM teams_event WHERE seq = 1"), 1),
    "a row removed": (lambda: sql("DELETE FROM teams_event WHERE seq = 8"), 8),
    "two rows swapped": (lambda: swap(4, 6), 4),
    "the tail cut": (lambda: sql("DELETE FROM teams_event WHERE seq > 8"), 9),
    "the tail cut with the head row": (
        lambda: (
            sql("DELETE FROM teams_event WHERE seq > 5"),
            LogPosition.objects.update(seq=5, hash=Event.objects.get(seq=5).hash),
        ),
        6,
    ),
    "everything deleted": (lambda: sql("DELETE FROM teams_event"), 1),
    "the head row deleted": (lambda: LogPosition.objects.all().delete(), 1),
    "a row put behind the head": (append_by_hand, 11),
    "a chain rewritten under a checkpoint": (lambda: rewrite_from(2), 6),
    "a checkpoint moved": (
        lambda: sql("UPDATE teams_checkpoint SET hash = %s", "f" * 64),
        6,
    ),
    "a checkpoint signed by nobody": (
        lambda: sql("UPDATE teams_checkpoint SET signature = 'AAAA'"),
        6,
    ),
}


def shift_time(seq: int) -> None:
    triggers.lift("teams")
    Event.objects.filter(seq=seq).update(at=F("at") + timedelta(microseconds=1))


@pytest.mark.invariant(24)
@pytest.mark.fault("W22")
@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_shows_and_the_row_is_named(log: None, what: str) -> None:
    assert verification.verify().ok
    tamper, first_bad = TAMPERED[what]
    tamper()
    report = verification.verify()
    assert (report.ok, report.first_bad) == (False, first_bad)
    assert report.reason


@pytest.mark.fault("W22")
def test_a_whole_log_rewritten_shows_against_a_head_kept_elsewhere(log: None) -> None:
    kept = selectors.head()
    sql("DELETE FROM teams_checkpoint")
    rewrite_from(2)
    assert verification.verify().ok  # the control: nothing left inside can show it
    report = verification.verify(expected=kept)
    assert (report.ok, report.first_bad) == (False, 10)


@pytest.mark.parametrize("microsecond", [0, 1, 120_000, 999_999])
def test_every_time_is_hashed_as_the_database_keeps_it(microsecond: int) -> None:
    at = datetime(2026, 2, 3, 4, 5, 6, microsecond, tzinfo=UTC)
    event = append_by_hand(at=at)
    LogPosition.objects.create(seq=event.seq, hash=event.hash)
    assert verification.verify().ok


def test_an_empty_log_holds() -> None:
    report = verification.verify()
    assert (report.ok, report.events, report.head) == (True, 0, LogHead(0, chain.ORIGIN))


@pytest.mark.one_database
def test_a_log_without_its_key_is_not_called_good(log: None, settings: Any, tmp_path: Path) -> None:
    settings.INSTALLATION_KEY_REF = f"file:{tmp_path / 'absent'}"
    report = verification.verify()
    assert (report.ok, report.first_bad) == (False, None)
    settings.INSTALLATION_KEY_REF = f"file:{tmp_path / 'other.pem'}"
    checkpoints.ensure_key()
    assert verification.verify().first_bad == 6


def verify_log(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("verify_log", *arguments, stdout=out, stderr=StringIO())
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.mark.one_database
def test_the_command_answers_in_exactly_this_shape(log: None) -> None:
    head = selectors.head()
    code, text = verify_log("--json")
    assert code == 0
    assert text == (
        f'{{"ok":true,"events":10,"head":{{"seq":10,"hash":"{head.hash}"}},"first_bad":null}}\n'
    )
    sql("UPDATE teams_event SET actor = 'eve' WHERE seq = 3")
    code, text = verify_log("--json")
    assert code == 1
    assert json.loads(text) == {
        "ok": False,
        "events": 10,
        "head": {"seq": 10, "hash": head.hash},
        "first_bad": 3,
    }
    code, text = verify_log()
    assert code == 1
    assert "event 3 is not what was recorded" in text


@pytest.mark.one_database
def test_the_command_takes_a_head_that_was_kept(log: None) -> None:
    head = selectors.head()
    assert verify_log("--json", "--head", f"{head.seq}:{head.hash}")[0] == 0
    assert verify_log("--json", "--head", f"{head.seq + 1}:{head.hash}")[0] == 1
    assert verify_log("--json", "--head", f"{head.seq}:{'0' * 64}")[0] == 1
    with pytest.raises(CommandError):
        verify_log("--head", "nonsense")


# --- Checkpoints ----------------------------------------------------------------------------------


def test_a_head_is_signed_once(fill: Fill) -> None:
    assert checkpoints.sign_head() is None
    fill(3)
    signed = checkpoints.sign_head()
    assert signed is not None
    assert (signed.seq, signed.hash) == (3, selectors.head().hash)
    assert checkpoints.holds(signed, checkpoints.installation_key().public_key())
    assert checkpoints.sign_head() is None
    assert Checkpoint.objects.count() == 1


def test_where_two_sign_the_same_head_the_first_one_stands(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(3)
    key, theirs = checkpoints.installation_key(), []

    def meanwhile() -> Any:
        monkeypatch.undo()
        theirs.append(checkpoints.sign_head())
        return key

    monkeypatch.setattr(checkpoints, "installation_key", meanwhile)
    assert checkpoints.sign_head() == theirs[0]
    assert Checkpoint.objects.count() == 1


def test_a_checkpoint_holds_for_its_own_key_and_head_only(
    fill: Fill, settings: Any, tmp_path: Path
) -> None:
    fill(1)
    signed = checkpoints.sign_head()
    assert signed is not None
    ours = checkpoints.installation_key().public_key()
    for changes in ({"seq": 2}, {"hash": "0" * 64}, {"signature": "*"}, {"key_id": "0" * 16}):
        forged = Checkpoint(
            **{
                "seq": signed.seq,
                "hash": signed.hash,
                "key_id": signed.key_id,
                "signature": signed.signature,
                **changes,
            }
        )
        assert not checkpoints.holds(forged, ours)
    settings.INSTALLATION_KEY_REF = f"file:{tmp_path / 'other.pem'}"
    checkpoints.ensure_key()
    assert not checkpoints.holds(signed, checkpoints.installation_key().public_key())


def test_a_head_is_due_after_a_second_or_a_hundred_events() -> None:
    pace = checkpoints.Pace()
    assert pace.is_due(head_seq=1, now=0.0)  # this process has never signed
    pace = checkpoints.Pace(seq=1, at=50.0)
    assert not pace.is_due(head_seq=100, now=50.9)
    assert pace.is_due(head_seq=101, now=50.9)
    assert pace.is_due(head_seq=2, now=51.0)


def test_appending_signs_and_the_beat_takes_the_rest(
    fill: Fill, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        fill(2 * checkpoints.EVERY_EVENTS)
    assert selectors.head().seq - selectors.signed_seq() < checkpoints.EVERY_EVENTS
    checkpoints.sign_if_due()
    assert selectors.signed_seq() == selectors.head().seq
    assert not checkpoints.sign_if_due()


def test_a_missing_installation_key_stops_no_work(
    fill: Fill, settings: Any, tmp_path: Path, django_capture_on_commit_callbacks: Any
) -> None:
    settings.INSTALLATION_KEY_REF = f"file:{tmp_path / 'absent'}"
    with django_capture_on_commit_callbacks(execute=True):
        fill(1)
    assert checkpoints.sign_if_due() is False
    assert not Checkpoint.objects.exists()
