"""`manage.py worker`: takes tasks from the queue, runs the timetable, and says that it is alive."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import structlog
from django.core.management.base import BaseCommand, CommandError
from django.db import Error, connections
from django_q.cluster import Cluster

from config.timetable import TIMETABLE
from guards.fronts.commands import CHECKED_AT_START
from guards.queue import is_task, schedules
from guards.services import heartbeats
from teams.services import checkpoints

logger = structlog.get_logger(__name__)

#: Seconds between two signs of life, two looks at the timetable, two at the log's head.
_BEAT_EVERY = 5.0
_TIMETABLE_EVERY = 20.0
_SIGN_EVERY = 1.0


class _Duty:
    """Something the worker's main process does every so many seconds."""

    def __init__(self, every: float, act: Callable[[], object], *, first: float = 0.0) -> None:
        self._every = every
        self._act = act
        self._next = time.monotonic() + first

    def do_if_due(self) -> None:
        """Do it when its time has come; the next time counts from now, whether it fails or not."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every
            self._act()


class Command(BaseCommand):
    """Run the queue's workers until SIGTERM or SIGINT.

    Send the signal to this process only: one to the whole process group kills the processes that
    should end in order. Under systemd that is `KillMode=mixed`. A running task is finished first.
    """

    help = "Take tasks from the queue and run the timetable. Example: manage.py worker"
    requires_system_checks = CHECKED_AT_START

    def handle(self, *args: Any, **options: Any) -> None:
        """Start the cluster, beat and run the timetable beside it, stop it when asked."""
        stop = threading.Event()
        _set_on_signal(stop)
        missing = [entry.task for entry in TIMETABLE if not is_task(entry.task)]
        if missing:
            raise CommandError(f"The timetable names tasks that do not exist: {missing}")
        schedules.remove_refused()
        schedules.ensure(TIMETABLE)
        schedules.enqueue_all(TIMETABLE)
        connections.close_all()  # the cluster forks, and a connection must not be shared
        cluster = Cluster()
        _set_on_signal(stop)  # in place of the cluster's own handlers
        cluster.start()
        try:
            _tend(cluster, stop)
        finally:
            cluster.stop()
            _say_goodbye()
        if not stop.is_set():
            raise CommandError("The queue's cluster ended by itself.")


def _set_on_signal(stop: threading.Event) -> None:
    """Let SIGTERM and SIGINT set this event, from the first moment on."""

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)


def _tend(cluster: Cluster, stop: threading.Event) -> None:
    """Beat, run the timetable and sign the log until told to stop, or the cluster is gone."""
    duties = [
        _Duty(_BEAT_EVERY, lambda: heartbeats.beat(role="worker")),
        _Duty(_TIMETABLE_EVERY, schedules.run_due, first=_TIMETABLE_EVERY),
        _Duty(_SIGN_EVERY, checkpoints.sign_if_due),
    ]
    while cluster.sentinel.is_alive() and not stop.wait(0.25):
        try:
            for duty in duties:
                duty.do_if_due()
        except Error:
            logger.exception("the database did not answer; trying again")
            connections.close_all()
            stop.wait(_BEAT_EVERY)


def _say_goodbye() -> None:
    """Nobody need wait for the next beat of a worker that ended in order."""
    with contextlib.suppress(Error):
        heartbeats.stop(role="worker")
