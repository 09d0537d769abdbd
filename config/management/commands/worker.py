"""`manage.py worker`: takes tasks from the queue, runs the timetable, and says that it is alive."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from types import FrameType
from typing import Any

import structlog
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections
from django_q.cluster import Cluster

from config.timetable import TIMETABLE
from guards.queue import is_task, schedules
from guards.services import heartbeats

logger = structlog.get_logger(__name__)

#: Seconds between two signs of life, and between two looks at the timetable.
_BEAT_EVERY = 5.0
_TIMETABLE_EVERY = 20.0


class Command(BaseCommand):
    """Run the queue's workers until SIGTERM or SIGINT.

    Send the signal to this process only: one to the whole process group kills the processes that
    should end in order. Under systemd that is `KillMode=mixed`. A running task is finished first.
    """

    help = "Take tasks from the queue and run the timetable. Example: manage.py worker"

    def handle(self, *args: Any, **options: Any) -> None:
        """Start the cluster, beat and run the timetable beside it, stop it when asked."""
        missing = [entry.task for entry in TIMETABLE if not is_task(entry.task)]
        if missing:
            raise CommandError(f"The timetable names tasks that do not exist: {missing}")
        schedules.remove_refused()
        schedules.ensure(TIMETABLE)
        schedules.enqueue_all(TIMETABLE)
        connections.close_all()  # the cluster forks, and a connection must not be shared
        cluster = Cluster()
        stop = _stop_on_signal()
        cluster.start()
        try:
            _tend(cluster, stop)
        finally:
            cluster.stop()
            _say_goodbye()
        if not stop.is_set():
            raise CommandError("The queue's cluster ended by itself.")


def _stop_on_signal() -> threading.Event:
    """An event that SIGTERM and SIGINT set, in place of the cluster's own handlers."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return stop


def _tend(cluster: Cluster, stop: threading.Event) -> None:
    """Beat and run the timetable until told to stop, or until the cluster is gone."""
    next_timetable = time.monotonic() + _TIMETABLE_EVERY
    while cluster.sentinel.is_alive():
        try:
            heartbeats.beat(role="worker")
            if time.monotonic() >= next_timetable:
                next_timetable = time.monotonic() + _TIMETABLE_EVERY
                schedules.run_due()
        except DatabaseError:
            logger.exception("the database did not answer; trying again")
            connections.close_all()
        if _wait(cluster, stop, _BEAT_EVERY):
            return


def _say_goodbye() -> None:
    """Nobody need wait for the next beat of a worker that ended in order."""
    with contextlib.suppress(DatabaseError):
        heartbeats.stop(role="worker")


def _wait(cluster: Cluster, stop: threading.Event, seconds: float) -> bool:
    """Wait, but not past the cluster's end. Whether we were told to stop."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and cluster.sentinel.is_alive():
        if stop.wait(0.25):
            return True
    return stop.is_set()
