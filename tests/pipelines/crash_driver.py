"""Kills a worker at every step of a pipeline, recovers in another process, and tells what was left.

    python -m tests.pipelines.crash_driver DIRECTORY MIGRATED < points.json

A migrated database is furnished; each point gets a copy, a child that works until it is killed by
SIGKILL, and a second child that recovers and reports. Points are moments that the program
announces: an event of the log that was just committed or is about to be, or a public signal.
Standard output is one JSON object: point → report.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any


def prepare(directory: Path, migrated: Path) -> None:
    """Settings, database, keys, two signed commands, one admitted message."""
    database = directory / "template.sqlite3"
    shutil.copy(migrated, database)
    os.environ |= {
        "DATA_DIR": str(directory),
        "DATABASE_URL": f"sqlite:///{database}",
        "SECRET_KEY": "tests-only-" + "0" * 50,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "LOG_LEVEL": "CRITICAL",
        "REDIS_URL": "",
        "OWNER_HANDLE": "",
        "ALLOWED_BINARIES": f"/usr/bin,/bin,{directory}",
    }
    from tests.keys import Keys

    keys = Keys()
    key_file = directory / "owner.pgp"
    key_file.write_bytes(keys.owner.public)
    os.environ |= {"OWNER_FINGERPRINT": keys.owner.fingerprint, "OWNER_KEY_FILE": str(key_file)}
    import django

    django.setup()
    from django.conf import settings

    # What was committed is there after SIGKILL; only a power cut asks for the disk.
    options = settings.DATABASES["default"]["OPTIONS"]
    options["init_command"] = options["init_command"].replace("=FULL", "=OFF")
    furnish(directory, keys)
    from django.db import connections

    connections.close_all()


def furnish(directory: Path, keys: Any) -> None:
    from approvals.services import artifacts
    from pipelines.services import rules
    from teams.services import checkpoints
    from tests.guards.factories import ContactFactory, PermissionFactory
    from tests.pipelines.factories import OPERATOR, Desk, Owner, script

    artifacts.ensure_key()
    checkpoints.ensure_key()
    owner = Owner(keys.owner, directory)
    for name in ("first", "second"):
        lines = f'echo {name} >> "{directory}/runs"; echo result of {name}'
        owner.install(name, binary=script(directory, name, lines))
    calls = [{"command": "first"}, {"command": "second"}]
    rules.save_rule(name="work", match="work", calls=calls, by=OPERATOR)
    desk = Desk(keys.alice)
    bob = ContactFactory(address="bob@example.net")
    PermissionFactory(identity=desk.identity, contact=bob, write=True)
    desk.message("work")


class CountingSubmission:
    """An SMTP server's part: each contact is a line in a file before it is answered."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def send(self, endpoint: Any, **mail: Any) -> Any:
        from mail.gateways.base import SendOutcome, SubmissionResult
        from tests.pipelines.factories import body

        with self.file.open("a") as lines:
            lines.write(json.dumps(body(mail["payload"])) + "\n")
        return SubmissionResult(SendOutcome.ACCEPTED, "smtp-250", 250, "taken", {}, True)


class Transport:
    def __init__(self, file: Path) -> None:
        self.submission = CountingSubmission(file)


def kill_myself(**_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: dict[str, Any]) -> None:
    """Kill this process at a moment: before or after a commit, at a signal, at a status."""
    remaining = [point.get("nth", 1)]

    def strike() -> None:
        remaining[0] -= 1
        if remaining[0] == 0:
            kill_myself()

    if "signal" in point:
        arm_signal(point["signal"], strike)
    elif "after" in point:
        arm_after(point["after"], strike)
    elif "before" in point:
        arm_before(point["before"], strike)
    elif "status" in point:
        arm_status(point["status"], strike)


def arm_signal(name: str, strike: Callable[[], None]) -> None:
    from approvals import signals as approvals
    from pipelines import signals as pipelines

    announced = getattr(pipelines, name, None) or getattr(approvals, name)
    announced.connect(lambda **_: strike(), weak=False)


def arm_after(kind: str, strike: Callable[[], None]) -> None:
    from teams.models import Event
    from teams.signals import events_appended

    def look(first: int, last: int, **_: Any) -> None:
        if Event.objects.filter(seq__range=(first, last), kind=kind).exists():
            strike()

    events_appended.connect(look, weak=False)


def arm_before(kind: str, strike: Callable[[], None]) -> None:
    from guards.signals import unit_closing

    def look(unit: Any, **_: Any) -> None:
        if any(getattr(note, "kind", "") == kind for note in unit.notes):
            strike()

    unit_closing.connect(look, weak=False)


def arm_status(status: str, strike: Callable[[], None]) -> None:
    from django.db import transaction

    from mail.signals import outbound_changed

    def look(outbound: Any, **_: Any) -> None:
        if outbound.status == status:
            transaction.on_commit(strike)

    outbound_changed.connect(look, weak=False)


def in_child(task: Callable[[], None]) -> int:
    """Run it in a fork; how the fork ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            task()
            code = 0
        except Exception:  # noqa: BLE001 - a fork must never run on into pytest or its parent
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def ask(directory: Path, name: str, point: dict[str, Any]) -> None:
    """The pipeline of this point has one stage, which is prepared, waits for a person and goes on.

    Whether it was asked is a file: the worker that is killed and the one after it are processes.
    """
    from pipelines import registry
    from pipelines.types import RunResult
    from tests.pipelines.built_ins import Asking

    asked = directory / f"{name}.asked"

    class Asks(Asking):
        def run(self, job: Any) -> RunResult:
            with (directory / "runs").open("a") as lines:
                lines.write("ask\n")
            if asked.exists():
                return RunResult(ok=True, output=b'"an answer"')
            asked.touch()
            return RunResult(ok=False, waiting=True)

    def prepared(job: Any) -> None:
        if point.get("inside") == "prepare":
            kill_myself()

    registry.register_built_in(Asks(preparing=prepared, plannable=True))
    registry.register_waiter(lambda stage_id: asked.exists())


def move_in(directory: Path, name: str) -> None:
    """Use this point's copy of the database and its own counters."""
    from django.db import connections

    from mail.registry import register_transport

    connections.databases["default"]["NAME"] = str(directory / f"{name}.sqlite3")
    register_transport("imap", Transport(directory / f"{name}.sent"))  # type: ignore[arg-type]


def work(directory: Path, name: str, point: dict[str, Any]) -> None:
    from mail.models import Message
    from pipelines import tasks

    move_in(directory, name)
    if point.get("policy") == "approve":
        from guards.models import Identity

        Identity.objects.update(reply_policy="approve")
    if point.get("asks"):
        from pipelines.models import Rule

        Rule.objects.update(calls=[{"command": "ask", "args": {}}])
        ask(directory, name, point)
    if point.get("sends"):
        from pipelines.models import Rule

        send = {"command": "send", "args": {"to": "bob@example.net", "subject": "For you"}}
        Rule.objects.update(calls=[{"command": "first", "args": {}}, send])
    message = Message.objects.get()
    if point.get("cancels"):
        from pipelines.services import control, intake
        from tests.pipelines.factories import OPERATOR

        pipeline = intake.take_in(message_id=message.pk)
        arm(point)
        control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)
    arm(point)
    tasks.take_in(message.pk)


def recover(directory: Path, name: str, point: dict[str, Any]) -> None:
    """What the worker's timetable does, twice, with the queue played by hand; then the report."""
    from approvals.services import effects
    from guards import process
    from mail import selectors as mail
    from mail.models import Outbound
    from mail.services import outbound
    from pipelines.models import Pipeline
    from pipelines.services import execution, intake, recovery, waking

    move_in(directory, name)
    if point.get("asks"):
        ask(directory, name, {})
    interrupted = 0
    for _ in range(2):
        effects.reconcile()
        if point.get("late"):
            for row in Outbound.objects.filter(submitted_at__isnull=False):
                Outbound.objects.filter(pk=row.pk).update(
                    submitted_at=row.submitted_at - timedelta(hours=1)
                )
            outbound.settle_cut_off()
        interrupted += recovery.recover()
        waking.take_answers()
        for message in mail.due_messages():
            intake.take_in(message_id=message.pk)
        for pipeline in Pipeline.objects.filter(status__in=Pipeline.DUE):
            execution.run(pipeline_id=pipeline.pk)
    assert process.this_process()
    (directory / f"{name}.report").write_text(json.dumps(report(directory, name, interrupted)))


def report(directory: Path, name: str, interrupted: int) -> dict[str, Any]:
    from pipelines.models import Pipeline
    from pipelines.services import replies
    from teams.services import verification

    pipeline = Pipeline.objects.get()
    sent = directory / f"{name}.sent"
    runs = directory / "runs"
    fixed = replies.fixed_text(pipeline.pk)
    texts = [json.loads(line) for line in sent.read_text().splitlines()] if sent.exists() else []
    told = {
        "status": pipeline.status,
        "stages": dict(pipeline.stages.values_list("command", "status")),
        "attempts": max(pipeline.stages.values_list("attempt", flat=True)),
        "runs": runs.read_text().split() if runs.exists() else [],
        "sent": ["fixed" if text == fixed else text for text in texts],
        "interrupted": interrupted,
        "log": verification.verify().ok,
        "notice_due": pipeline.notice_due,
    }
    runs.unlink(missing_ok=True)
    return told


def main() -> None:
    directory = Path(sys.argv[1])
    points = json.load(sys.stdin)
    prepare(directory, Path(sys.argv[2]))
    gc.freeze()  # so that a fork copies less
    reports = {}
    for name, point in points.items():
        shutil.copy(directory / "template.sqlite3", directory / f"{name}.sqlite3")
        killed = in_child(lambda name=name, point=point: work(directory, name, point))
        recovered = in_child(lambda name=name, point=point: recover(directory, name, point))
        file = directory / f"{name}.report"
        reports[name] = {
            "killed": killed,
            "recovered": recovered,
            **(json.loads(file.read_text()) if file.exists() else {}),
        }
    json.dump(reports, sys.stdout)


if __name__ == "__main__":
    main()
