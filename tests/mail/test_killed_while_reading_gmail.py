"""Kill -9 at each step of a pass over a Gmail label: afterwards every mail is stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection, transaction

from approvals.models import Connection
from guards.signals import unit_closing
from mail import registry, selectors
from mail.gateways.google.client import GoogleClient
from mail.gateways.google.memory import MemoryGoogle, MemoryWire
from mail.models import Account, FolderCursor, GmailMessage, Message
from mail.services import polling
from mail.services.gmail_ledger import RowLedger
from mail.signals import messages_stored
from teams.models import Event
from tests.databases import exit_of, forked, kill_me, shared
from tests.mail.factories import AccountFactory, IdentityFactory, make_mail

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.fault("imap-01", "send-20", "send-23"),
]

MAILS = 9


class Doomed(MemoryWire):
    """A wire that ends this very process after one of its answers."""

    def __init__(self, google: MemoryGoogle, endpoint: str, after: int = 0) -> None:
        super().__init__(google)
        self._endpoint, self._after = endpoint, after
        self._before = google.count(endpoint)

    def exchange(self, request, *, seconds, max_bytes):
        answer = super().exchange(request, seconds=seconds, max_bytes=max_bytes)
        if self.google.count(self._endpoint) - self._before > self._after:
            kill_me()
        return answer


def at_answer(endpoint: str, after: int = 0) -> Callable[[MemoryGoogle], None]:
    return lambda google: registry.register_google(GoogleClient(Doomed(google, endpoint, after)))


def at_signal(signal, after: int = 0) -> Callable[[MemoryGoogle], None]:
    def arm(google: MemoryGoogle) -> None:
        left = [after]

        def kill(**_: object) -> None:
            if left[0] == 0:
                kill_me()
            left[0] -= 1

        signal.connect(kill, weak=False)

    return arm


def after_commit(google: MemoryGoogle) -> None:
    messages_stored.connect(lambda **_: transaction.on_commit(kill_me), weak=False)


POINTS = {
    "after the token": at_answer("token"),
    "after the profile": at_answer("profile"),
    "after the history": at_answer("history"),
    "after the first message": at_answer("message"),
    "after a later message": at_answer("message", after=5),
    "at the end of the ledger's unit": at_signal(unit_closing, after=1),
    "at the end of the first rows' unit": at_signal(unit_closing, after=2),
    "after the rows": at_signal(messages_stored),
    "after later rows": at_signal(messages_stored, after=1),
    "right after a commit": after_commit,
}
#: In a transaction, right after one, and between two: where a database has a part in it.
ON_BOTH = ("after a later message", "at the end of the first rows' unit", "right after a commit")


@pytest.fixture
def shared_database(transactional_db, tmp_path) -> Iterator[None]:
    with shared(tmp_path):
        yield


@pytest.fixture
def google(monkeypatch) -> Iterator[MemoryGoogle]:
    """A Google inside this process, and so a copy of it inside a child."""
    real, world = registry.google(), MemoryGoogle()
    registry.register_google(GoogleClient(MemoryWire(world)))
    yield world
    registry.register_google(real)


def _account(google: MemoryGoogle, monkeypatch: pytest.MonkeyPatch) -> Account:
    """One more connected Gmail account after its first pass over an empty mailbox."""
    identity = IdentityFactory()
    issued = google.issue(google.add_person(identity.email), "readonly")
    monkeypatch.setenv("GOOGLE_CLIENT_SECRET", issued.credential.client_secret.reveal())
    monkeypatch.setenv("GOOGLE_REFRESH_TOKEN", issued.credential.refresh_token.reveal())
    made = AccountFactory(
        identity=identity,
        protocol="gmail",
        username=identity.email,
        secret_ref="",
        smtp_host="",
    )
    Connection.objects.create(
        account_type="mail.account",
        account_id=str(made.pk),
        use=Connection.Use.READONLY,
        client_id=issued.credential.client_id,
        client_secret_ref="env:GOOGLE_CLIENT_SECRET",
        refresh_token_ref="env:GOOGLE_REFRESH_TOKEN",
        created_by="operator:olga",
    )
    polling.poll(account_id=made.pk)
    return made


#: Each point once; `make soak` has each with the history known and forgotten.
_PAIRS = [(point, forgotten) for point in POINTS for forgotten in (False, True)]
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
def test_every_mail_of_a_label_is_stored_once(
    shared_database, google, monkeypatch, subtests, pairs
):
    monkeypatch.setattr("mail.gateways.google.mailbox.NOMINAL_BYTES", polling.BATCH_BYTES // 4)
    for point, forgotten in pairs:
        with subtests.test(point, forgotten=forgotten):
            account = _account(google, monkeypatch)
            _die_and_poll_again(account, google, POINTS[point], forgotten=forgotten)


def _die_and_poll_again(
    account: Account,
    google: MemoryGoogle,
    arm: Callable[[MemoryGoogle], None],
    *,
    forgotten: bool,
) -> None:
    box = google.people[account.username].mailbox
    raws = [make_mail(subject=str(n)) for n in range(MAILS)]
    for raw in raws:
        box.add(raw)
    told = Event.objects.filter(kind="mail.received").count()

    def doomed() -> None:
        arm(google)
        polling.poll(account_id=account.pk)

    assert exit_of(forked(doomed)) == -9
    if forgotten:
        box.forget_history()
    polling.poll(account_id=account.pk)
    found = list(Message.objects.filter(account=account).order_by("number"))
    assert sorted(selectors.raw(message) for message in found) == sorted(raws)
    assert Event.objects.filter(kind="mail.received").count() == told + MAILS
    assert GmailMessage.objects.filter(account=account).count() == MAILS
    assert FolderCursor.objects.get(account=account).last_uid == MAILS
    assert polling.poll(account_id=account.pk).fetched == 0


@pytest.mark.invariant(1)
def test_a_cursor_that_moved_before_its_mail_was_listed_for_good_would_lose_it(
    shared_database, google, monkeypatch
):
    """The control: with ids kept in memory alone, a pass that dies loses what it had learned."""
    account = _account(google, monkeypatch)
    box = google.people[account.username].mailbox
    box.add(make_mail())
    enter = RowLedger.enter

    def forgetful(self, *, older, newer, history_id):
        enter(self, older=(), newer=(), history_id=history_id)

    with monkeypatch.context() as broken:
        broken.setattr(RowLedger, "enter", forgetful)
        polling.poll(account_id=account.pk)
    polling.poll(account_id=account.pk)
    assert Message.objects.count() == 0
