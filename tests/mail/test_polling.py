"""A pass over a folder: everything once, nothing lost, whatever the server does."""

from __future__ import annotations

import hashlib
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.files.storage import storages

from guards.models import Decision
from guards.services.units import current_unit
from mail import registry
from mail.exceptions import AccountDisabled, ConnectionLost, LeaseHeld, LeaseLost, LoginRefused
from mail.gateways import blobs
from mail.gateways.memory import MemoryMailbox, MemoryTransport
from mail.models import Account, AccountLease, FolderCursor, Location, Message
from mail.services import accounts, ingest, leases, polling, preparing
from mail.types import FetchedMessage
from teams.models import Event
from tests.mail.factories import OPERATOR, AccountFactory, make_contact, make_mail

pytestmark = pytest.mark.django_db

USER = "agent@agents.test"


@pytest.fixture
def settled(account):
    """The account after its first pass over an empty folder."""
    polling.poll(account_id=account.pk)
    return account


def kinds(kind: str) -> int:
    return Event.objects.filter(kind=kind).count()


@pytest.mark.invariant(1)
@pytest.mark.fault("W13", "sister-13")
def test_every_mail_is_stored_once_however_many_there_are(settled, mail_server):
    raws = [make_mail(subject=f"Number {n}") for n in range(25)]
    for raw in raws:
        mail_server.deliver(USER, raw)
    report = polling.poll(account_id=settled.pk)
    again = polling.poll(account_id=settled.pk)
    assert (report.fetched, report.stored) == (25, 25)
    assert (again.fetched, again.stored) == (0, 0)
    assert [m.subject for m in Message.objects.order_by("number")] == [
        f"Number {n}" for n in range(25)
    ]
    assert list(Message.objects.order_by("number").values_list("number", flat=True)) == list(
        range(1, 26)
    )
    assert Decision.objects.filter(subject_type="mail.message").count() == 25
    assert kinds("mail.received") == 25


def test_a_pass_takes_more_than_one_batch(settled, mail_server, monkeypatch):
    monkeypatch.setattr(polling, "BATCH_MESSAGES", 4)
    for n in range(10):
        mail_server.deliver(USER, make_mail(subject=str(n)))
    assert polling.poll(account_id=settled.pk).stored == 10
    assert FolderCursor.objects.get().last_uid == 10


def test_a_batch_comes_within_one_lease_on_a_slow_line(settings):
    slow = 1_500_000 / 8  # bytes a second
    assert max(polling.BATCH_BYTES, settings.MAIL_MAX_BYTES) / slow < leases.LEASE_SECONDS


def test_the_first_pass_neither_notifies_nor_starts_and_makes_one_event(account, mail_server):
    make_contact(account.identity, "alice@example.org", "rwx")
    for n in range(3):
        mail_server.deliver(USER, make_mail(subject=str(n)))
    report = polling.poll(account_id=account.pk)
    assert report.first_pass
    assert (kinds("mail.first-pass"), kinds("mail.received")) == (1, 0)
    assert not Message.objects.exclude(execution="none").exists()
    mail_server.deliver(USER, make_mail(subject="news"))
    polling.poll(account_id=account.pk)
    assert kinds("mail.received") == 1


class Latecomer(MemoryMailbox):
    """A mailbox where mail arrives between SELECT and SEARCH."""

    def uids_after(self, uid: int) -> tuple[int, ...]:
        if len(self._folder.messages) == 1:
            self._server.deliver(USER, make_mail(subject="new"))
        return super().uids_after(uid)


class Forgetful(MemoryMailbox):
    """A mailbox that answers NO half way through a FETCH of sizes, as after a foreign expunge."""

    def sizes(self, uids):
        return dict(list(super().sizes(uids).items())[:1])


class Late(MemoryMailbox):
    """A mailbox whose last mail is deleted between SEARCH and FETCH."""

    def sizes(self, uids):
        sizes = super().sizes(uids)
        self._folder.messages.pop(max(uids), None)
        return sizes


class Hesitant(MemoryMailbox):
    """A mailbox that counts a new mail in UIDNEXT before any SEARCH shows it."""

    shown = 2

    def uids_after(self, uid: int) -> tuple[int, ...]:
        return super().uids_after(uid)[: self.shown]


class Watchful(MemoryMailbox):
    """A mailbox that notes whether a unit of work was open while it was read."""

    open_units: list[object] = []

    def fetch(self, uids, *, headers_only=False):
        self.open_units.append(current_unit())
        return super().fetch(uids, headers_only=headers_only)


@pytest.fixture
def speak_to(mail_server):
    """Make accounts open this kind of mailbox."""

    def use(kind):
        transport = MemoryTransport(mail_server)
        transport.open_mailbox = lambda endpoint: kind(mail_server, endpoint.username)
        registry.register_transport("imap", transport)

    return use


@contextmanager
def full_disk():
    """No file of this process may grow large: writing fails half way, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handled = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handled)


@pytest.mark.one_database
def test_mail_that_arrives_during_the_first_pass_is_news(account, mail_server, speak_to):
    mail_server.deliver(USER, make_mail(subject="old"))
    speak_to(Latecomer)
    polling.poll(account_id=account.pk)
    assert (kinds("mail.first-pass"), kinds("mail.received")) == (1, 1)


@pytest.mark.invariant(2)
@pytest.mark.fault("imap-02")
def test_another_uidvalidity_attaches_places_anew_and_doubles_nothing(settled, mail_server):
    make_contact(settled.identity, "alice@example.org", "r--")
    for n in range(3):
        mail_server.deliver(USER, make_mail(subject=str(n)))
    polling.poll(account_id=settled.pk)
    old = FolderCursor.objects.get().uidvalidity
    mail_server.recreate(USER)
    mail_server.deliver(USER, make_mail(subject="new"))
    report = polling.poll(account_id=settled.pk)
    assert (report.stored, report.known) == (1, 3)
    assert Message.objects.count() == 4
    assert Location.objects.filter(uidvalidity=old).count() == 3
    assert Location.objects.exclude(uidvalidity=old).count() == 4
    assert kinds("mail.received") == 4


@pytest.mark.one_database
@pytest.mark.invariant(1, 5)
@pytest.mark.fault("imap-12")
def test_a_connection_that_breaks_keeps_what_came_and_goes_on_next_time(settled, mail_server):
    uids = [mail_server.deliver(USER, make_mail(subject=str(n))) for n in range(4)]
    mail_server.broken_uids = {uids[2]}
    with pytest.raises(ConnectionLost):
        polling.poll(account_id=settled.pk)
    assert Message.objects.count() == 2
    assert FolderCursor.objects.get().last_uid == uids[1]
    mail_server.broken_uids = set()
    polling.poll(account_id=settled.pk)
    assert sorted(Message.objects.values_list("subject", flat=True)) == ["0", "1", "2", "3"]


@pytest.mark.one_database
@pytest.mark.invariant(1)
@pytest.mark.fault("imap-16")
def test_mail_that_did_not_come_is_asked_for_again_and_holds_up_nothing(settled, mail_server):
    uids = [mail_server.deliver(USER, make_mail(subject=str(n))) for n in range(3)]
    mail_server.withheld_uids = {uids[1]}
    assert polling.poll(account_id=settled.pk).stored == 2
    assert FolderCursor.objects.get().last_uid == uids[0]
    assert polling.poll(account_id=settled.pk).fetched == 0
    mail_server.withheld_uids = set()
    assert polling.poll(account_id=settled.pk).stored == 1
    assert FolderCursor.objects.get().last_uid == uids[2]
    assert Message.objects.count() == 3


@pytest.mark.one_database
@pytest.mark.fault("imap-16")
def test_mail_whose_size_did_not_come_is_asked_for_again(settled, mail_server, speak_to):
    uids = [mail_server.deliver(USER, make_mail(subject=str(n))) for n in range(3)]
    speak_to(Forgetful)
    for _ in uids:
        polling.poll(account_id=settled.pk)
    assert Message.objects.count() == 3
    assert FolderCursor.objects.get().last_uid == uids[-1]


@pytest.mark.one_database
def test_mail_that_is_counted_before_it_is_shown_is_not_passed_by(settled, mail_server, speak_to):
    uids = [mail_server.deliver(USER, make_mail(subject=str(n))) for n in range(3)]
    speak_to(Hesitant)
    assert polling.poll(account_id=settled.pk).stored == 2
    speak_to(MemoryMailbox)
    assert polling.poll(account_id=settled.pk).stored == 1
    assert FolderCursor.objects.get().last_uid == uids[-1]


@pytest.mark.one_database
def test_mail_deleted_while_it_is_fetched_is_gone_and_the_cursor_moves_on(
    settled, mail_server, speak_to
):
    uids = [mail_server.deliver(USER, make_mail(subject=str(n))) for n in range(3)]
    speak_to(Late)
    assert polling.poll(account_id=settled.pk).stored == 2
    assert FolderCursor.objects.get().last_uid == uids[2]


@pytest.mark.one_database
def test_a_large_mail_is_stored_by_its_header_and_starts_nothing(settled, mail_server, settings):
    settings.MAIL_MAX_BYTES = 2000
    make_contact(settled.identity, "alice@example.org", "rwx")
    raw = make_mail(subject="Large", text="z" * 60 + "\n" + "z" * 5000 + "\n")
    mail_server.deliver(USER, raw)
    polling.poll(account_id=settled.pk)
    message = Message.objects.get()
    assert message.truncated
    assert message.size == len(raw)
    assert message.subject == "Large"
    assert message.execution == "none"


@pytest.mark.invariant(5)
@pytest.mark.fault("imap-09", "sister-39")
def test_a_failing_account_is_announced_once_and_recovers_once(settled, mail_server):
    before = Account.objects.get().last_success_at
    mail_server.down = True
    for _ in range(3):
        with pytest.raises(ConnectionLost):
            polling.poll(account_id=settled.pk)
    failing = Account.objects.get()
    assert (failing.state, failing.failures) == ("failing", 3)
    assert failing.last_success_at == before
    assert "refused" in failing.last_error
    assert kinds("account.failing") == 1
    mail_server.down = False
    polling.poll(account_id=settled.pk)
    recovered = Account.objects.get()
    assert (recovered.state, recovered.failures, recovered.last_error) == ("ok", 0, "")
    assert recovered.last_success_at > before
    assert kinds("account.recovered") == 1


@pytest.mark.one_database
@pytest.mark.invariant(1, 24)
def test_a_full_disk_is_a_failure_of_the_account_and_leaves_no_remains(settled, mail_server):
    raw = make_mail(text="more than fits\n" * 5_000)
    digest = hashlib.sha256(raw).hexdigest()
    place = Path(storages["mail"].path(blobs.name_of(digest)))
    mail_server.deliver(USER, raw)
    with full_disk(), pytest.raises(OSError, match="too large"):
        polling.poll(account_id=settled.pk)
    assert not list(place.parent.glob(f"*{digest}*"))
    assert Account.objects.get().state == "failing"
    assert Message.objects.count() == 0
    assert polling.poll(account_id=settled.pk).stored == 1


@pytest.mark.one_database
def test_a_refused_login_backs_off_longer_than_a_passing_fault(settled, mail_server):
    mail_server.passwords[USER] = "changed"
    with pytest.raises(LoginRefused):
        polling.poll(account_id=settled.pk)
    assert accounts.backoff(20) <= 60
    assert 60 < accounts.backoff(20, permanent=True) <= 900


def test_two_readers_never_have_one_account(settled):
    lease = leases.acquire(account_id=settled.pk)
    with pytest.raises(LeaseHeld):
        polling.poll(account_id=settled.pk)
    leases.release(lease=lease)
    polling.poll(account_id=settled.pk)
    assert Account.objects.get().state == "ok"


def test_a_lease_of_a_dead_process_is_free_at_once(settled):
    lease = leases.acquire(account_id=settled.pk)
    host, boot, _, started = lease.holder.rsplit(":", 3)
    AccountLease.objects.update(holder=f"{host}:{boot}:999999999:{started}")
    assert leases.acquire(account_id=settled.pk).fence == lease.fence + 1


@pytest.mark.invariant(2)
def test_who_lost_the_lease_stores_nothing(settled):
    lease = leases.acquire(account_id=settled.pk)
    AccountLease.objects.update(fence=lease.fence + 1)
    cursor = FolderCursor.objects.get()
    position = preparing.Position("INBOX", cursor.uidvalidity, cursor.last_uid, 1)
    with pytest.raises(LeaseLost):
        ingest.store_batch(
            account=settled,
            lease=lease,
            position=position,
            fetched=[FetchedMessage(1, make_mail(), None)],
        )
    assert not Message.objects.exists()
    assert FolderCursor.objects.get().last_uid == cursor.last_uid


@pytest.mark.invariant(1)
def test_a_cursor_that_another_pass_moved_is_never_set_back(settled):
    lease = leases.acquire(account_id=settled.pk)
    FolderCursor.objects.update(last_uid=9)
    position = preparing.Position("INBOX", FolderCursor.objects.get().uidvalidity, 0, 1)
    with pytest.raises(LeaseLost):
        ingest.store_batch(account=settled, lease=lease, position=position, fetched=[])
    assert FolderCursor.objects.get().last_uid == 9


@pytest.mark.one_database
def test_a_disabled_account_is_not_read(settled):
    accounts.disable(account_id=settled.pk, by=OPERATOR)
    with pytest.raises(AccountDisabled):
        polling.poll(account_id=settled.pk)


@pytest.mark.one_database
@pytest.mark.fault("headers-18")
def test_the_same_mail_in_two_mailboxes_is_one_record_each(settled, mail_server):
    other = AccountFactory(identity__handle="second", identity__email="second@agents.test")
    mail_server.add_user("second@agents.test", "mailbox-secret")
    polling.poll(account_id=other.pk)
    raw = make_mail()
    for user in (USER, "second@agents.test"):
        mail_server.deliver(user, raw)
    for each in (settled, other):
        polling.poll(account_id=each.pk)
    assert Message.objects.count() == 2
    assert {m.account_id for m in Message.objects.all()} == {settled.pk, other.pk}
    assert [m.number for m in Message.objects.all()] == [1, 1]


@pytest.mark.invariant(2)
def test_two_copies_in_one_folder_are_one_message_in_two_places(settled, mail_server):
    raw = make_mail()
    mail_server.deliver(USER, raw)
    mail_server.deliver(USER, raw)
    report = polling.poll(account_id=settled.pk)
    assert (report.fetched, report.stored, report.known) == (2, 1, 1)
    assert Location.objects.count() == 2


@pytest.mark.one_database
@pytest.mark.fault("sister-8", "sister-40")
def test_a_pass_depends_on_no_directory_and_no_home(settled, mail_server, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME", raising=False)
    mail_server.deliver(USER, make_mail(subject="untagged"))
    assert polling.poll(account_id=settled.pk).stored == 1


@pytest.mark.invariant(1, 24)
def test_an_error_inside_the_commit_leaves_neither_rows_nor_a_moved_cursor(settled, mail_server):
    from mail.signals import messages_stored

    def fail(**_):
        raise RuntimeError("a receiver fails")

    mail_server.deliver(USER, make_mail())
    messages_stored.connect(fail)
    try:
        with pytest.raises(RuntimeError):
            polling.poll(account_id=settled.pk)
    finally:
        messages_stored.disconnect(fail)
    assert not Message.objects.exists()
    assert FolderCursor.objects.get().last_uid == 0
    assert polling.poll(account_id=settled.pk).stored == 1


def test_fetching_happens_outside_any_transaction(settled, mail_server, speak_to):
    mail_server.deliver(USER, make_mail())
    speak_to(Watchful)
    polling.poll(account_id=settled.pk)
    assert Watchful.open_units == [None]
