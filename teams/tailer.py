"""One tailer per process: a thread that sees new events, encodes each once, and wakes the sockets.

It needs no Redis and no channel layer. SQLite: `PRAGMA data_version` every 20 ms on one connection
(0.8 % of a core). PostgreSQL: LISTEN, with the appending transaction's NOTIFY, and a poll as the
fallback. The log is the truth; what is not kept here is read from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any

from django.db import DatabaseError, connection

from teams import selectors
from teams.frames import EventFrame, event_frame
from teams.services.events import CHANNEL

logger = logging.getLogger(__name__)

Listener = Callable[[], None]

#: How often SQLite's data_version is read, and PostgreSQL's fallback poll, in seconds.
SQLITE_SECONDS = 0.02
POSTGRESQL_SECONDS = 2.0
#: How long a waiting tailer takes to notice that it should end, in seconds.
STOP_SECONDS = 0.2
#: After a database error the tailer waits this long and connects again.
PAUSE_SECONDS = 0.5
#: Events read at once.
BATCH = 500
#: Encoded events that are kept for all sockets; one that is further behind reads the log itself.
KEPT = 1_000


@dataclass(eq=False, slots=True)
class Subscription:
    """One listener, called in its own event loop."""

    loop: asyncio.AbstractEventLoop
    listener: Listener


@dataclass(slots=True)
class Tailer:
    """The process's one reader of new events. It runs while anybody listens."""

    _lock: Lock = field(default_factory=Lock)
    _subscriptions: set[Subscription] = field(default_factory=set)
    _thread: Thread | None = None
    _ending: list[Thread] = field(default_factory=list)
    _stop: Flag = field(default_factory=Flag)
    _recent: tuple[EventFrame, ...] = ()

    def subscribe(self, listener: Listener) -> Subscription:
        """Call `listener` in the running loop whenever there are new events."""
        subscription = Subscription(asyncio.get_running_loop(), listener)
        with self._lock:
            self._subscriptions.add(subscription)
            if self._thread is None or not self._thread.is_alive():
                self._ending = [thread for thread in self._ending if thread.is_alive()]
                self._stop = Flag()
                self._thread = Thread(
                    target=self._run, args=(self._stop,), name="event-tailer", daemon=True
                )
                self._thread.start()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop calling. The thread ends when nobody listens any more; `join` waits for that."""
        with self._lock:
            self._subscriptions.discard(subscription)
            if self._subscriptions or self._thread is None:
                return
            self._ending.append(self._thread)
            self._thread, self._recent = None, ()
            self._stop.set()

    def join(self) -> None:
        """Wait until every thread that nobody listens to has let go of its database connection."""
        while self._ending:
            self._ending.pop().join()

    def recent(self, after: int, limit: int) -> Sequence[EventFrame] | None:
        """The next encoded events after one; None when they are not (or no longer) kept here."""
        kept = self._recent
        if not kept or not kept[0].seq - 1 <= after < kept[-1].seq:
            return None
        start = after + 1 - kept[0].seq
        return kept[start : start + limit]

    def _run(self, stop: Flag) -> None:
        position: int | None = None
        while not stop.is_set():
            try:
                position = self._follow(stop, position)
            except DatabaseError:
                logger.warning("the event tailer lost its database, and connects again")
                stop.wait(PAUSE_SECONDS)
            except Exception:
                logger.exception("the event tailer stumbled, and begins again")
                stop.wait(PAUSE_SECONDS)
            finally:
                connection.close()

    def _follow(self, stop: Flag, position: int | None) -> int:
        changes = _WATCHES[connection.vendor]()
        seen = selectors.head().seq if position is None else position
        self._announce()  # what was committed before this look is news to those who wait already
        while not stop.is_set():
            seen = self._deliver(seen)
            changes(stop)
        return seen

    def _deliver(self, seen: int) -> int:
        head = selectors.head().seq
        while seen < head:
            frames = [event_frame(event) for event in selectors.events_between(seen, BATCH)]
            if not frames:
                return seen
            seen = frames[-1].seq
            self._keep(frames)
            self._announce()
        return min(seen, head)

    def _keep(self, frames: Sequence[EventFrame]) -> None:
        follows = self._recent and self._recent[-1].seq + 1 == frames[0].seq
        self._recent = ((*self._recent, *frames) if follows else tuple(frames))[-KEPT:]

    def _announce(self) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Listener]] = {}
        with self._lock:
            for subscription in self._subscriptions:
                by_loop.setdefault(subscription.loop, []).append(subscription.listener)
        for loop, listeners in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_call, listeners)


def _call(listeners: Sequence[Listener]) -> None:
    for listener in listeners:
        listener()


class _SqliteWatch:
    """Waits until another connection has committed something."""

    def __init__(self) -> None:
        self._version = self._read()

    def _read(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA data_version")
            version: int = cursor.fetchone()[0]
        return version

    def __call__(self, stop: Flag) -> None:
        while not stop.wait(SQLITE_SECONDS):
            version = self._read()
            if version != self._version:
                self._version = version
                return


class _PostgresqlWatch:
    """Waits for the NOTIFY of an appending transaction, or for the fallback's time."""

    def __init__(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        self._connection: Any = connection.connection

    def __call__(self, stop: Flag) -> None:
        waited = 0.0
        while waited < POSTGRESQL_SECONDS and not stop.is_set():
            with connection.wrap_database_errors:
                for _ in self._connection.notifies(timeout=STOP_SECONDS, stop_after=1):
                    return
            waited += STOP_SECONDS


_WATCHES: dict[str, Callable[[], Callable[[Flag], None]]] = {
    "sqlite": _SqliteWatch,
    "postgresql": _PostgresqlWatch,
}

#: This process's tailer.
tailer = Tailer()
