"""`poll_mail`, the sweep, and the tasks of mail."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from guards import queue
from mail import tasks
from mail.models import Account, Message
from mail.services import due, leases, polling
from tests.mail.factories import AccountFactory, make_mail

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

USER = "agent@agents.test"


def poll(*arguments: str) -> tuple[int, list[dict]]:
    out = StringIO()
    code = 0
    try:
        call_command("poll_mail", *arguments, "--json", stdout=out)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


def test_it_polls_every_account_and_says_so(account, mail_server):
    mail_server.deliver(USER, make_mail())
    code, lines = poll()
    assert code == 0
    assert [(line["account"], line["ok"], line["stored"]) for line in lines] == [("agent", True, 1)]


@pytest.mark.fault("sister-39")
def test_it_polls_the_named_account_only_and_refuses_an_unknown_name(account, mail_server):
    other = AccountFactory(identity__handle="second", identity__email="second@agents.test")
    mail_server.add_user(other.username, "mailbox-secret")
    code, lines = poll("--account", "second")
    assert [line["account"] for line in lines] == ["second"]
    assert code == 0
    for command in ("poll_mail", "watch_mail"):
        with pytest.raises(CommandError, match="known: agent, second") as refused:
            call_command(command, "--account", "third")
        assert refused.value.returncode == 2


def test_an_account_that_cannot_be_read_is_exit_1_and_the_others_are_read(account, mail_server):
    other = AccountFactory(identity__handle="second", identity__email="second@agents.test")
    code, lines = poll()
    assert code == 1
    assert {line["account"]: line["ok"] for line in lines} == {"agent": True, other.name: False}
    assert next(line for line in lines if not line["ok"])["code"] == "mail-login-refused"


def test_an_account_that_a_watcher_reads_is_left_to_it(account):
    lease = leases.acquire(account_id=account.pk, watching=True)
    code, (line,) = poll()
    assert (code, line["ok"], line["held"], line["fetched"]) == (0, True, True, 0)
    leases.release(lease=lease)
    assert poll()[1][0]["held"] is False


@pytest.fixture
def enqueued(monkeypatch):
    """What was put onto the queue."""
    seen = []
    monkeypatch.setattr(queue, "enqueue", lambda path, *args: seen.append((path, *args)))
    return seen


@pytest.mark.fault("sister-43")
def test_the_sweep_enqueues_each_due_account_once(account, enqueued):
    assert due.enqueue_polls() == 1
    assert due.enqueue_polls() == 0
    assert enqueued == [("mail.tasks.poll_account", account.pk)]
    Account.objects.update(next_poll_at=timezone.now() - timedelta(seconds=1))
    assert due.enqueue_polls() == 1


def test_the_sweep_leaves_watched_disabled_and_never_polled_accounts_alone(account, enqueued):
    lease = leases.acquire(account_id=account.pk, watching=True)
    assert due.enqueue_polls() == 0
    leases.release(lease=lease)
    Account.objects.update(poll_interval="n")
    assert due.enqueue_polls() == 0
    Account.objects.update(poll_interval="5m", state="disabled")
    assert due.enqueue_polls() == 0
    assert enqueued == []


def test_a_failing_poll_is_counted_and_ends_its_task_quietly(account, mail_server):
    mail_server.down = True
    tasks.poll_account(account.pk)
    assert Account.objects.get().failures == 1
    mail_server.down = False
    mail_server.deliver(USER, make_mail())
    tasks.poll_account(account.pk)
    assert Message.objects.count() == 1


def test_the_tasks_are_registered_under_the_names_that_the_worker_uses():
    for name in ("poll_account", "poll_due", "recompute_trust", "file_sent"):
        assert queue.is_task(f"mail.tasks.{name}")


def test_a_pass_sets_the_next_poll_one_interval_on(account):
    Account.objects.update(poll_interval="1h")
    polling.poll(account_id=account.pk)
    wait = Account.objects.get().next_poll_at - timezone.now()
    assert timedelta(minutes=59) < wait <= timedelta(hours=1)
