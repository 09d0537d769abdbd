"""Watching: one IDLE connection per account, so that mail is seen the moment it arrives.

A supervisor keeps one thread for each account that is to be watched, and looks every second or two
for accounts that were added, changed or switched off. A thread holds its account's lease, polls on
every connect, waits in IDLE (or, where that is missing, for its interval), and polls again. Each
wait in IDLE is short, far below the 29 minutes after which servers hang up: ending it proves that
the line still lives, so a silent one is noticed within 90 seconds (imap-06, imap-08, imap-09).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import structlog
from django.db import DatabaseError, close_old_connections, connection

from guards.exceptions import CountersignError
from guards.services import heartbeats
from mail.exceptions import LeaseHeld, LeaseLost
from mail.gateways.base import Mailbox, Waker
from mail.models import Account
from mail.services import accounts, gmail_reading, leases, mailboxes, polling
from mail.services.leases import Lease

log = structlog.get_logger(__name__)

#: Seconds of one IDLE. With the timeout of its end this stays below 90 in all.
IDLE_SECONDS = 55.0
#: Seconds after which a lease is renewed: never before mail that has just arrived is stored.
RENEW_SECONDS = 30.0
#: Seconds between two looks at the table of accounts, and between two heartbeats.
LOOK_SECONDS = 1.5
HEARTBEAT_SECONDS = 10.0
#: Seconds until another try where somebody else has the account.
HELD_SECONDS = 10.0
#: Seconds that a stop waits for all threads together; they hold nothing that a crash would spoil.
STOP_SECONDS = 1.5


def watch(*, stop: Waker, only: int | None = None) -> None:
    """Watch every account (or one) until `stop` is woken. Blocks; beats as `watcher`."""
    supervisor = _Supervisor(only)
    try:
        while not stop.is_set:
            supervisor.look()
            stop.wait(LOOK_SECONDS)
    finally:
        supervisor.end()


@dataclass(slots=True)
class _Watched:
    """One running thread, for the revision of the account that it was started with."""

    revision: int
    waker: Waker
    thread: threading.Thread


class _Supervisor:
    """Keeps threads in line with the table of accounts."""

    def __init__(self, only: int | None) -> None:
        self._only = only
        self._watched: dict[int, _Watched] = {}
        self._beaten_at = 0.0

    def look(self) -> None:
        """Start, restart and stop threads; beat. A database that is away is asked again later."""
        try:
            close_old_connections()
            self._beat()
            wanted = self._wanted()
        except DatabaseError:
            log.exception("mail.watch.database")
            return
        for account_id in set(self._watched) - set(wanted):
            self._stop(account_id)
        for account_id, revision in wanted.items():
            running = self._watched.get(account_id)
            if running is not None and running.revision != revision:
                self._stop(account_id)
                running = None
            if running is None or not running.thread.is_alive():
                self._start(account_id, revision)

    def end(self) -> None:
        """Wake all threads, wait a moment, say goodbye."""
        for watched in self._watched.values():
            watched.waker.wake()
        ends_at = time.monotonic() + STOP_SECONDS
        for watched in self._watched.values():
            watched.thread.join(max(0.0, ends_at - time.monotonic()))
        heartbeats.stop(role="watcher")

    def _wanted(self) -> dict[int, int]:
        rows = Account.objects.exclude(state=Account.State.DISABLED).exclude(
            poll_interval=Account.Interval.NEVER
        )
        if self._only is not None:
            rows = rows.filter(pk=self._only)
        in_vain = gmail_reading.not_connected()
        return {
            pk: revision for pk, revision in rows.values_list("pk", "revision") if pk not in in_vain
        }

    def _beat(self) -> None:
        if time.monotonic() - self._beaten_at >= HEARTBEAT_SECONDS or not self._beaten_at:
            heartbeats.beat(role="watcher")
            self._beaten_at = time.monotonic()

    def _start(self, account_id: int, revision: int) -> None:
        waker = Waker()
        watcher = _Watcher(account_id, waker)
        thread = threading.Thread(target=watcher.run, name=f"watch-{account_id}", daemon=True)
        self._watched[account_id] = _Watched(revision, waker, thread)
        thread.start()

    def _stop(self, account_id: int) -> None:
        watched = self._watched.pop(account_id)
        watched.waker.wake()
        watched.thread.join(STOP_SECONDS)


class _Watcher:
    """One account's loop: lease, connection, poll, wait, and again."""

    def __init__(self, account_id: int, waker: Waker) -> None:
        self._account_id = account_id
        self._waker = waker
        self._kept: Lease | None = None

    def run(self) -> None:
        """Until woken. Whatever happens inside a turn ends that turn, never the thread."""
        try:
            while not self._waker.is_set:
                close_old_connections()
                self._waker.wait(self._turn())
        finally:
            connection.close()

    def _turn(self) -> float:
        """One lease and one connection; seconds to wait before the next."""
        account: Account | None = None
        try:
            self._give_back()
            account = accounts.usable(self._account_id)
            lease = leases.acquire(account_id=self._account_id, watching=True)
        except LeaseHeld:
            return HELD_SECONDS
        except (CountersignError, DatabaseError) as error:
            return self._failed(account, error)
        try:
            self._serve(account, lease)
        except (LeaseLost, LeaseHeld):
            return HELD_SECONDS
        except Exception as error:  # noqa: BLE001 - the loop outlives whatever a server does
            return self._failed(account, error)
        finally:
            self._release(lease)
        return 0.0

    def _serve(self, account: Account, lease: Lease) -> None:
        """Poll on connect, then after each wait, while the connection lasts."""
        renewed_at = time.monotonic()
        with mailboxes.open_mailbox(account=account, lease=lease) as mailbox:
            state = mailbox.select(account.folder)
            while not self._waker.is_set:
                polling.poll_open(account=account, lease=lease, mailbox=mailbox, state=state)
                accounts.record_success(account=account)
                if time.monotonic() - renewed_at > RENEW_SECONDS:
                    leases.renew(lease=lease)
                    renewed_at = time.monotonic()
                if not self._wait(account, lease, mailbox):
                    state = mailbox.select(account.folder)

    def _wait(self, account: Account, lease: Lease, mailbox: Mailbox) -> bool:
        """Until the server has news (True), or it is time to look anyway."""
        if "IDLE" in mailbox.capabilities:
            return mailbox.idle(seconds=IDLE_SECONDS, waker=self._waker)
        interval = accounts.interval(account)
        ends_at = time.monotonic() + (interval.total_seconds() if interval else IDLE_SECONDS)
        while not self._waker.is_set and time.monotonic() < ends_at:
            self._waker.wait(min(IDLE_SECONDS, ends_at - time.monotonic()))
            leases.renew(lease=lease)
            mailbox.existing([1])
        return False

    def _failed(self, account: Account | None, error: Exception) -> float:
        log.warning("mail.watch.failed", account=self._account_id, error=str(error)[:300])
        if account is None:
            return accounts.backoff(6)
        try:
            return accounts.record_failure(account=account, error=error)
        except DatabaseError:
            return accounts.backoff(6)

    def _release(self, lease: Lease) -> None:
        """Give the lease back now, or before the next turn: this process would find it held."""
        self._kept = lease
        try:
            self._give_back()
        except DatabaseError:
            log.exception("mail.watch.release", account=self._account_id)

    def _give_back(self) -> None:
        if self._kept is not None:
            leases.release(lease=self._kept)
            self._kept = None
