"""Queue rows are code: only registered tasks run, however a row came about."""

from __future__ import annotations

import os

import pytest
from django.db import connection
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.models import OrmQ, Schedule
from django_q.signing import SignedPackage
from django_q.tasks import async_chain, async_task

from guards import queue
from guards.exceptions import TaskRefused
from guards.queue import schedules
from guards.queue.brokers import OrmBroker
from guards.signals import task_refused

ran: list[str] = []


@queue.task
def note(text: str = "ran") -> None:
    """A registered task."""
    ran.append(text)


def unregistered() -> None:
    """A function that nobody registered."""
    ran.append("unregistered")


NOTE = f"{__name__}.note"
UNREGISTERED = f"{__name__}.unregistered"


@pytest.fixture
def refused():
    seen: list[tuple[str, str]] = []

    def receive(sender: object, path: str, where: str, **_: object) -> None:
        seen.append((where, path))

    task_refused.connect(receive)
    ran.clear()
    yield seen
    task_refused.disconnect(receive)


def _package(function: object, **options: object) -> str:
    return SignedPackage.dumps(
        {"id": "x", "name": "x", "func": function, "args": (), "kwargs": {}, **options}
    )


def _take() -> list[tuple[int, str]]:
    broker = OrmBroker(list_key="countersign")
    broker._sleep = lambda: None
    return broker.dequeue()


def _write_row(package: str) -> None:
    OrmQ.objects.create(key="countersign", payload=package, lock=timezone.now())


@pytest.mark.django_db
def test_the_configured_broker_is_the_fenced_one():
    assert type(get_broker()).__module__ == "guards.queue.brokers"


@pytest.mark.django_db
def test_a_registered_task_enters_and_leaves_the_queue(refused):
    async_task(NOTE, "hello")
    taken = _take()
    assert [SignedPackage.loads(package)["func"] for _, package in taken] == [NOTE]
    assert refused == []


@pytest.mark.django_db
@pytest.mark.parametrize("function", ["os.system", UNREGISTERED, os.system, ""])
def test_it_refuses_an_unregistered_function_at_enqueue(function):
    with pytest.raises(TaskRefused):
        async_task(function, "touch /tmp/never")
    assert not OrmQ.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "options",
    [
        {"hook": "os.system"},
        {"chain": [("os.system", ("true",))]},
        {"chain": [(NOTE, (), {"hook": "os.system"})]},
        {"chain": [(NOTE, (), {"q_options": {"chain": ["os.system"]}})]},
        {"q_options": {"hook": "os.system", "sync": True}},
    ],
)
def test_it_refuses_unregistered_code_in_the_options(options):
    with pytest.raises(TaskRefused):
        async_task(NOTE, **options)
    assert not OrmQ.objects.exists()


@pytest.mark.django_db
def test_it_refuses_a_chain_with_one_unregistered_link():
    with pytest.raises(TaskRefused):
        async_chain([(NOTE, ("one",)), ("os.system", ("true",))])


@pytest.mark.django_db
def test_it_refuses_a_function_asked_to_run_in_place(refused):
    with pytest.raises(TaskRefused):
        async_task(UNREGISTERED, sync=True)
    assert ran == []


@pytest.mark.django_db
def test_the_broker_refuses_even_a_package_signed_by_us():
    with pytest.raises(TaskRefused):
        OrmBroker(list_key="countersign").enqueue(_package("os.system"))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("package", "expected"),
    [
        (_package("os.system"), ("queue", "os.system")),
        (_package(NOTE, hook="os.system"), ("hook", "os.system")),
        (_package(NOTE, chain=[("os.remove", ("x",))]), ("queue", "os.remove")),
        ("not a package", ("queue", "(unreadable package)")),
        (_package(NOTE) + "x", ("queue", "(unreadable package)")),
    ],
)
def test_a_written_queue_row_is_deleted_and_announced_where_it_is_taken(refused, package, expected):
    _write_row(package)
    _write_row(_package(NOTE))
    assert _take() == []
    assert refused == [expected]
    assert len(_take()) == 1, "the good row behind it still runs"


@pytest.mark.django_db(transaction=True)
def test_a_schedule_row_written_by_sql_never_runs(refused):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_q_schedule (name, func, args, schedule_type, repeats, next_run)"
            " VALUES ('mine', 'os.system', '(''touch /tmp/never'',)', 'O', -1, %s)",
            [timezone.now() - timezone.timedelta(minutes=5)],
        )
    schedules.run_due()
    assert refused == [("schedule", "os.system")]
    assert not Schedule.objects.exists()
    assert not OrmQ.objects.exists()


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("function", "hook", "keywords"),
    [
        (NOTE, "os.system", ""),
        (NOTE, None, "{'q_options': {'hook': 'os.system'}}"),
        (NOTE, None, "{'hook': 'os.system'}"),
        (NOTE, None, "{'q_options': {'chain': [('os.system', ('x',))]}}"),
        (UNREGISTERED, None, "{'q_options': {'sync': True}}"),
    ],
)
def test_a_schedule_row_may_not_carry_unregistered_code(refused, function, hook, keywords):
    _schedule(function, hook=hook, kwargs=keywords)
    schedules.run_due()
    assert len(refused) == 1
    assert ran == []
    assert not OrmQ.objects.exists()


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("keywords", ["hook='os.system'", "[]", "{'q_options': 1}", "("])
def test_a_schedule_row_with_other_keywords_is_removed_and_holds_up_nothing(refused, keywords):
    _schedule(NOTE, kwargs=keywords)
    _schedule(NOTE)
    schedules.run_due()
    assert refused == [("schedule", NOTE)]
    assert OrmQ.objects.count() == 1


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
def test_a_schedule_row_of_a_registered_task_is_enqueued(refused):
    _schedule(NOTE)
    _schedule("os.system")
    schedules.run_due()
    assert [SignedPackage.loads(row.payload)["func"] for row in OrmQ.objects.all()] == [NOTE]
    assert refused == [("schedule", "os.system")]


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "fields",
    [
        {"args": "("},
        {"args": "('one',)"},
        {"kwargs": "{1: 2}"},
        {"kwargs": "{'q_options': {'sync': True}}"},
        {"minutes": 0},
        {"minutes": None},
        {"schedule_type": "Z"},
        {"schedule_type": "C", "cron": "no cron"},
        {"intended_date_kwarg": "func"},
    ],
)
def test_a_schedule_row_that_cannot_be_read_holds_up_no_other(refused, fields):
    """django-q2 reads all due rows in one transaction."""
    _schedule(NOTE, **fields)
    _schedule(NOTE)
    schedules.run_due()
    assert refused == [("schedule", NOTE)]
    assert OrmQ.objects.count() == 1
    assert ran == []


@pytest.mark.one_database
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("days", "enqueued"), [(3, 1), (-4000, 1), (0, 0)])
def test_a_clock_that_jumps_stops_no_timetable(refused, days, enqueued):
    """After a jump backwards a row would wait for as long as the jump was."""
    _schedule(NOTE)
    soon = timezone.now() + timezone.timedelta(days=days, seconds=30)
    Schedule.objects.update(next_run=soon)
    schedules.run_due()
    assert OrmQ.objects.count() == enqueued
    assert refused == []
    assert Schedule.objects.get().next_run > timezone.now()


@pytest.mark.django_db
def test_the_timetable_is_written_once_and_set_right_again():
    entries = (schedules.Entry("note", NOTE, minutes=3),)
    schedules.ensure(entries)
    Schedule.objects.update(func="os.system", hook="os.system")
    schedules.ensure(entries)
    row = Schedule.objects.get()
    assert (row.func, row.hook, row.minutes) == (NOTE, None, 3)


def _schedule(function: str, **fields: object) -> None:
    usual = {
        "schedule_type": Schedule.MINUTES,
        "minutes": 1,
        "next_run": timezone.now() - timezone.timedelta(minutes=5),
    }
    row = Schedule.objects.create(func=function, **usual)
    Schedule.objects.filter(pk=row.pk).update(**fields)  # as SQL would: past every check of saving
