"""Kill -9 at each step of a pass: afterwards every mail is stored once (invariants 1 and 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection, transaction

from guards.signals import decided, unit_closing
from mail import registry, selectors
from mail.gateways.memory import MemoryMailbox, MemoryServer, MemoryTransport
from mail.models import Account, FolderCursor, Location, Message
from mail.services import polling
from mail.signals import messages_stored
from teams.models import Event
from tests.databases import exit_of, forked, kill_me, shared
from tests.mail.conftest import SECRET
from tests.mail.factories import AccountFactory, IdentityFactory, make_mail

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault("imap-01", "imap-02")]

MAILS = 9


class Doomed(MemoryMailbox):
    """A mailbox that ends this very process at one of its calls."""

    at = ""
    after = 0

    def _step(self, name: str) -> None:
        if self.at != name:
            return
        if Doomed.after == 0:
            kill_me()
        Doomed.after -= 1

    def select(self, folder):
        state = super().select(folder)
        self._step("select")
        return state

    def uids_after(self, uid):
        found = super().uids_after(uid)
        self._step("search")
        return found

    def sizes(self, uids):
        found = super().sizes(uids)
        self._step("sizes")
        return found

    def fetch(self, uids, *, headers_only=False):
        found = super().fetch(uids, headers_only=headers_only)
        self._step("fetch")
        return found


def at_mailbox(step: str, after: int = 0) -> Callable[[MemoryServer], None]:
    def arm(server: MemoryServer) -> None:
        Doomed.at, Doomed.after = step, after
        transport = MemoryTransport(server)
        transport.open_mailbox = lambda endpoint: Doomed(server, endpoint.username)
        registry.register_transport("imap", transport)

    return arm


def at_signal(signal, after: int = 0) -> Callable[[MemoryServer], None]:
    def arm(server: MemoryServer) -> None:
        left = [after]

        def kill(**_: object) -> None:
            if left[0] == 0:
                kill_me()
            left[0] -= 1

        signal.connect(kill, weak=False)

    return arm


def after_commit(server: MemoryServer) -> None:
    def kill_then(**_: object) -> None:
        transaction.on_commit(kill_me)

    messages_stored.connect(kill_then, weak=False)


POINTS = {
    "after SELECT": at_mailbox("select"),
    "after SEARCH": at_mailbox("search"),
    "after the sizes": at_mailbox("sizes"),
    "after the first FETCH": at_mailbox("fetch"),
    "after a later FETCH": at_mailbox("fetch", after=1),
    "after the rows": at_signal(messages_stored),
    "after a decision": at_signal(decided, after=1),
    "at the end of the lease's unit": at_signal(unit_closing),
    "at the end of the first commit's unit": at_signal(unit_closing, after=2),
    "right after a commit": after_commit,
}
#: In a transaction, right after one, and between two: where a database has a part in it.
ON_BOTH = ("after a later FETCH", "after the rows", "right after a commit")


@pytest.fixture
def shared_database(transactional_db, tmp_path) -> Iterator[None]:
    with shared(tmp_path):
        yield


#: Each point once; `make soak` has each with the same folder and with one made anew.
_PAIRS = [(point, recreated) for point in POINTS for recreated in (False, True)]
_ONCE = [(point, number % 2 == 1) for number, point in enumerate(POINTS)]
_ON_BOTH = [pair for pair in _ONCE if connection.vendor == "sqlite" or pair[0] in ON_BOTH]


@pytest.mark.invariant(1, 2)
@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param(_ON_BOTH, id="each point"),
        pytest.param(
            [pair for pair in _PAIRS if pair not in _ONCE], id="the others", marks=pytest.mark.soak
        ),
    ],
)
def test_every_mail_is_stored_once(shared_database, mail_server, monkeypatch, subtests, pairs):
    monkeypatch.setattr(polling, "BATCH_MESSAGES", 4)
    for point, recreated in pairs:
        with subtests.test(point, recreated=recreated):
            _die_and_poll_again(mail_server, POINTS[point], recreated=recreated)


def _die_and_poll_again(
    server: MemoryServer, arm: Callable[[MemoryServer], None], *, recreated: bool
) -> None:
    account = _account(server)
    user = account.username
    polling.poll(account_id=account.pk)
    raws = [make_mail(subject=str(n)) for n in range(MAILS)]
    for raw in raws:
        server.deliver(user, raw)
    told = Event.objects.filter(kind="mail.received").count()

    def doomed() -> None:
        arm(server)
        polling.poll(account_id=account.pk)

    assert exit_of(forked(doomed)) == -9
    if recreated:
        server.recreate(user)
    polling.poll(account_id=account.pk)
    found = list(Message.objects.filter(account=account).order_by("number"))
    assert sorted(selectors.raw(message) for message in found) == sorted(raws)
    assert [message.number for message in found] == list(range(1, MAILS + 1))
    assert Event.objects.filter(kind="mail.received").count() == told + MAILS
    cursor = FolderCursor.objects.get(account=account)
    assert cursor.last_uid == MAILS
    located = Location.objects.filter(message__account=account, uidvalidity=cursor.uidvalidity)
    assert located.count() == MAILS


def _account(server: MemoryServer) -> Account:
    """One more agent's mailbox on that server."""
    identity = IdentityFactory(reply_policy="auto")
    server.add_user(identity.email, SECRET)
    return AccountFactory(identity=identity, sent_folder="")
