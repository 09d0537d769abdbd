"""Reading a Gmail account through `poll_mail`, from a synthetic Google that counts contacts."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.db.models import F

from approvals.exceptions import ContactRefused
from approvals.models import Connection
from approvals.services import connections
from approvals.types import Contact
from guards.exceptions import InvalidInput
from guards.types import Subject
from mail import registry, selectors
from mail.exceptions import LeaseLost, MailboxReadOnly
from mail.gateways.base import Endpoint, Waker
from mail.gateways.google.base import StatusRefused
from mail.gateways.google.client import GoogleClient
from mail.gateways.google.http import HttpWire
from mail.models import Account, AccountLease, FolderCursor, GmailMessage, Location, Message
from mail.services import accounts, due, gmail_reading, leases, mailboxes, polling, watching
from teams.models import Event
from tests.mail.factories import OPERATOR, AccountFactory, IdentityFactory, make_contact, make_mail
from tests.mail.google import ADDRESS

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def google(google_server, monkeypatch):
    """A synthetic Google that every account of the test speaks to, with one person."""
    monkeypatch.setenv("GOOGLE_CLIENT_SECRET", "to-be-set")
    monkeypatch.setenv("GOOGLE_REFRESH_TOKEN", "to-be-set")
    real = registry.google()
    registry.register_google(GoogleClient(HttpWire(google_server.origins), seconds=5.0))
    google_server.person = google_server.google.add_person(ADDRESS)
    google_server.box = google_server.person.mailbox
    google_server.monkeypatch = monkeypatch
    yield google_server
    registry.register_google(real)


def connect(account: Account, server) -> None:
    """A person imports the account's read-only connection."""
    issued = server.google.issue(server.person, "readonly")
    server.monkeypatch.setenv("GOOGLE_CLIENT_SECRET", issued.credential.client_secret.reveal())
    server.monkeypatch.setenv("GOOGLE_REFRESH_TOKEN", issued.credential.refresh_token.reveal())
    server.issued = issued
    connections.import_connection(
        account=Subject("mail.account", str(account.pk)),
        use="readonly",
        client_id=issued.credential.client_id,
        client_secret_ref="env:GOOGLE_CLIENT_SECRET",
        refresh_token_ref="env:GOOGLE_REFRESH_TOKEN",
        by=OPERATOR,
        root=None,
    )


@pytest.fixture
def unconnected(google) -> Account:
    """A Gmail account that nobody has connected yet."""
    return AccountFactory(
        identity=IdentityFactory(handle="agent", email=ADDRESS, reply_policy="auto"),
        protocol="gmail",
        host="",
        port=993,
        username=ADDRESS,
        secret_ref="",
        smtp_host="",
    )


@pytest.fixture
def account(unconnected, google) -> Account:
    """A connected one that was never read."""
    connect(unconnected, google)
    return unconnected


@pytest.fixture
def settled(account, google) -> Account:
    """One after its first pass over an empty mailbox."""
    polling.poll(account_id=account.pk)
    google.google.contacts.clear()
    return account


def subjects() -> list[str]:
    return list(Message.objects.order_by("number").values_list("subject", flat=True))


def kinds(kind: str) -> int:
    return Event.objects.filter(kind=kind).count()


def poll_mail(account: Account) -> dict:
    """What `poll_mail --json` says, whatever its exit code."""
    out = StringIO()
    try:
        call_command("poll_mail", account=account.name, json=True, stdout=out)
    except SystemExit as ended:
        assert ended.code == 1
    return json.loads(out.getvalue())


def used(google) -> dict[str, int]:
    """Contacts by endpoint, those that were made."""
    asked = ("token", "userinfo", "profile", "thread", "message", "send", "list", "history")
    return {name: n for name in asked if (n := google.google.count(name))}


def test_mail_is_stored_byte_for_byte_and_judged_like_any_other(settled, google):
    make_contact(settled.identity, "alice@example.org", "rwx")
    raw = make_mail(text="Zwölf.\n.dot\n", to=ADDRESS)
    stored = google.box.add(raw, at=1_790_000_000)
    told = poll_mail(settled)
    assert (told["ok"], told["fetched"], told["stored"]) == (True, 1, 1)
    message = Message.objects.get()
    assert selectors.raw(message) == raw
    assert message.internal_date.timestamp() == 1_790_000_000
    assert not message.seen
    assert kinds("mail.received") == 1
    assert Location.objects.get().uid == GmailMessage.objects.get().uid
    known = selectors.gmail_reference(message)
    assert (known.id, known.thread_id) == (stored.id, stored.thread_id)
    assert used(google) == {"token": 1, "profile": 1, "history": 1, "message": 1}
    settled.refresh_from_db()
    assert settled.state == "ok"


def test_reading_changes_nothing_at_google(settled, google):
    stored = google.box.add(make_mail())
    before = (stored.labels.copy(), stored.history_id, google.box.history_id)
    polling.poll(account_id=settled.pk)
    assert (stored.labels, stored.history_id, google.box.history_id) == before
    assert {one.method for one in google.google.contacts if one.endpoint != "token"} == {"GET"}


def test_every_mail_is_stored_once_however_often_it_is_looked_for(settled, google):
    for number in range(20):
        google.box.add(make_mail(subject=f"Number {number}"))
    assert polling.poll(account_id=settled.pk).stored == 20
    assert polling.poll(account_id=settled.pk).fetched == 0
    assert subjects() == [f"Number {number}" for number in range(20)]
    assert google.google.count("message") == 20


def test_the_first_pass_neither_notifies_nor_starts_and_what_follows_does(account, google):
    make_contact(account.identity, "alice@example.org", "rwx")
    google.box.add(make_mail(subject="Old"))
    google.box.add(make_mail(subject="Sent"), labels=("SENT",))
    report = polling.poll(account_id=account.pk)
    assert (report.stored, report.first_pass) == (1, True)
    assert (kinds("mail.received"), kinds("mail.first-pass")) == (0, 1)
    google.box.add(make_mail(subject="New"))
    assert not polling.poll(account_id=account.pk).first_pass
    assert kinds("mail.received") == 1
    assert subjects() == ["Old", "New"]


@pytest.mark.invariant(1)
@pytest.mark.fault("send-23")
def test_mail_that_comes_while_everything_is_listed_is_news_and_is_not_lost(account, google):
    google.box.add(make_mail(subject="Old"))
    google.before["list"] = lambda: google.box.add(make_mail(subject="Meanwhile"))
    google.after["list"] = lambda: google.box.add(make_mail(subject="Right after"))
    report = polling.poll(account_id=account.pk)
    assert report.stored == 3
    assert subjects() == ["Old", "Meanwhile", "Right after"]
    assert kinds("mail.received") == 2


@pytest.mark.invariant(2)
@pytest.mark.fault("send-20", "send-23")
def test_a_history_that_is_gone_brings_everything_anew_and_doubles_nothing(settled, google):
    google.box.add(make_mail(subject="Known"))
    polling.poll(account_id=settled.pk)
    google.box.add(make_mail(subject="In the gap"))
    google.box.forget_history()
    google.before["list"] = lambda: google.box.add(make_mail(subject="Meanwhile"))
    google.after["list"] = lambda: google.box.add(make_mail(subject="Right after"))
    google.google.contacts.clear()
    assert polling.poll(account_id=settled.pk).stored == 2
    assert google.google.count("message") == 2
    assert polling.poll(account_id=settled.pk).stored == 1
    assert subjects() == ["Known", "In the gap", "Meanwhile", "Right after"]
    assert kinds("mail.received") == 4
    settled.refresh_from_db()
    assert (settled.state, settled.failures) == ("ok", 0)


@pytest.mark.fault("send-21")
def test_where_the_history_is_gone_each_time_each_time_a_new_cursor_is_stored(settled, google):
    google.fault("history.gone")
    cursors = []
    for number in range(3):
        google.box.add(make_mail(subject=str(number)))
        polling.poll(account_id=settled.pk)
        cursors.append(FolderCursor.objects.get().history_id)
    assert cursors == sorted(set(cursors))
    assert cursors[-1] == google.box.history_id
    google.heal()
    google.google.contacts.clear()
    polling.poll(account_id=settled.pk)
    assert used(google) == {"token": 1, "profile": 1, "history": 1}
    assert subjects() == ["0", "1", "2"]


def test_the_cursor_is_pinned_before_anything_is_listed(account, google):
    polling.poll(account_id=account.pk)
    order = [one.endpoint for one in google.google.contacts]
    assert order == ["token", "profile", "list", "history"]


def test_a_cursor_that_moved_without_its_mail_brings_the_mail_with_the_next_pass(settled, google):
    for number in range(5):
        google.box.add(make_mail(subject=str(number)))
    google.fault("message.reset-before", times=1)
    with pytest.raises(Exception, match="broke"):
        polling.poll(account_id=settled.pk)
    assert GmailMessage.objects.count() == 5
    assert polling.poll(account_id=settled.pk).stored == 5
    assert subjects() == ["0", "1", "2", "3", "4"]
    assert kinds("mail.received") == 5


def test_a_connection_that_breaks_in_between_keeps_what_had_come(settled, google):
    for number in range(6):
        google.box.add(make_mail(subject=str(number)))
    google.after["message"] = lambda: google.fault("message.status-503", times=1)
    with pytest.raises(StatusRefused):
        polling.poll(account_id=settled.pk)
    assert subjects() == ["0"]
    polling.poll(account_id=settled.pk)
    assert subjects() == ["0", "1", "2", "3", "4", "5"]


def test_one_answer_that_cannot_be_read_holds_up_nothing(settled, google):
    google.box.add(make_mail(subject="First"))
    google.box.add(make_mail(subject="Second"))
    google.fault("message.raw-plain-base64", times=1)
    polling.poll(account_id=settled.pk)
    assert subjects() == ["Second"]
    polling.poll(account_id=settled.pk)
    assert sorted(subjects()) == ["First", "Second"]


@pytest.mark.parametrize("how", ["deleted", "trashed"])
def test_what_was_removed_before_it_was_fetched_holds_up_nothing(settled, google, how):
    gone = google.box.add(make_mail(subject="Gone"))
    google.box.add(make_mail(subject="Here"))
    if how == "deleted":
        google.after["history"] = lambda: google.box.delete(gone.id)
    else:
        google.after["history"] = lambda: google.box.label(gone.id, "TRASH")
    polling.poll(account_id=settled.pk)
    assert subjects() == ["Here"]
    google.google.contacts.clear()
    polling.poll(account_id=settled.pk)
    assert google.google.count("message") == 0


def test_mail_that_was_archived_before_it_was_fetched_is_not_lost(settled, google):
    stored = google.box.add(make_mail(subject="Archived"))
    google.after["history"] = lambda: google.box.unlabel(stored.id, "INBOX")
    polling.poll(account_id=settled.pk)
    assert subjects() == ["Archived"]


def test_no_more_is_held_at_once_than_may_be_and_the_rest_comes_next(settled, google, monkeypatch):
    monkeypatch.setattr("mail.gateways.google.mailbox.HELD_BYTES", 10_000)
    for number in range(5):
        google.box.add(make_mail(subject=str(number), text="x" * 6_000))
    passes = [polling.poll(account_id=settled.pk).stored for _ in range(4)]
    assert passes == [2, 2, 1, 0]
    assert subjects() == ["0", "1", "2", "3", "4"]


def test_a_long_fetch_keeps_its_lease(settled, google, monkeypatch):
    monkeypatch.setattr("mail.gateways.google.mailbox._RENEW_SECONDS", 0.0)
    google.box.add(make_mail())
    lease = leases.acquire(account_id=settled.pk)
    with mailboxes.open_mailbox(account=settled, lease=lease) as mailbox:
        mailbox.select("INBOX")
        AccountLease.objects.update(fence=lease.fence + 1)
        with pytest.raises(LeaseLost):
            mailbox.fetch(mailbox.uids_after(0))
    assert google.google.count("message") == 0


def test_mail_beyond_the_limit_is_stored_by_its_header(settled, google, settings):
    settings.MAIL_MAX_BYTES = 100_000
    raw = make_mail(subject="Large", text="x" * 300_000)
    google.box.add(raw)
    google.box.add(make_mail(subject="Small"))
    polling.poll(account_id=settled.pk)
    large, small = Message.objects.order_by("number")
    assert (large.subject, large.truncated, large.size) == ("Large", True, len(raw))
    assert (small.subject, small.truncated) == ("Small", False)


@pytest.mark.invariant(5)
@pytest.mark.fault("send-16")
def test_a_revoked_token_is_shown_at_once_and_nothing_is_asked_until_a_person_acts(settled, google):
    google.box.add(make_mail())
    google.issued.revoked = True
    told = poll_mail(settled)
    assert (told["ok"], told["code"]) == (False, "needs-reconnect")
    assert "connect it again" in told["error"]
    settled.refresh_from_db()
    assert (settled.state, settled.failures) == ("failing", 1)
    assert "connect it again" in settled.last_error
    assert Event.objects.get(kind="account.failing").facts["error"] == "needs-reconnect"
    connection = Connection.objects.get()
    assert (connection.state, connection.reason) == ("needs_reconnect", "invalid_grant")
    assert used(google) == {"token": 1}

    for _ in range(3):
        assert poll_mail(settled)["code"] == "needs-reconnect"
    Account.objects.update(next_poll_at=None)
    assert due.enqueue_polls() == 0
    assert google.google.count() == 1
    settled.refresh_from_db()
    assert settled.failures == 1
    assert kinds("account.failing") == 1

    connect(settled, google)
    assert due.enqueue_polls() == 1
    assert poll_mail(settled)["stored"] == 1
    settled.refresh_from_db()
    assert (settled.state, settled.last_error) == ("ok", "")
    assert kinds("account.recovered") == 1


_PASSING = ["status-503", "status-500", "status-429", "status-401"]
_ENDPOINTS = ["token", "profile", "history", "message"]


@pytest.mark.fault("send-18")
@pytest.mark.one_database
@pytest.mark.parametrize(
    ("endpoint", "fault"),
    [  # each answer and each endpoint; `make soak` has every pair
        pytest.param(endpoint, fault, marks=[] if one == other else [pytest.mark.soak])
        for one, endpoint in enumerate(_ENDPOINTS)
        for other, fault in enumerate(_PASSING)
    ],
)
def test_what_passes_by_itself_asks_for_nobody(settled, google, endpoint, fault):
    google.box.add(make_mail())
    google.fault(f"{endpoint}.{fault}", times=1)
    assert not poll_mail(settled)["ok"]
    assert Connection.objects.get().state == "new"
    Account.objects.update(next_poll_at=None)
    assert due.enqueue_polls() == 1
    assert poll_mail(settled)["stored"] == 1
    settled.refresh_from_db()
    assert settled.state == "ok"


@pytest.mark.fault("send-19")
def test_a_token_that_ends_in_a_pass_is_another_one_in_the_next(settled, google):
    google.box.add(make_mail())
    google.after["history"] = google.google.forget_tokens
    assert not poll_mail(settled)["ok"]
    assert poll_mail(settled)["stored"] == 1


def test_an_omitted_scope_is_accepted_for_reading(account, google):
    google.fault("token.scope-omitted")
    google.box.add(make_mail())
    assert polling.poll(account_id=account.pk).stored == 1


@pytest.mark.one_database
@pytest.mark.parametrize(
    "fault",
    [
        *("scope-null", "scope-number", "scope-empty", "scope-control", "scope-extra"),
        *("scope-modify", "scope-missing-mail", "scope-duplicate-mail", "scope-other-use"),
        *("scope-huge", "scope-alias-only"),
        *(  # each of them is refused by its name in tests/mail/gmail, too
            pytest.param(fault, marks=pytest.mark.soak)
            for fault in (
                *("scope-list", "scope-object", "scope-blank", "scope-compose"),
                *("scope-full-mail", "scope-profile", "scope-shortened", "scope-upper-case"),
                *("scope-prefix", "scope-newline", "scope-duplicate"),
                *("scope-short-email-only", "scope-both-emails"),
            )
        ),
    ],
)
def test_any_other_scope_than_reading_alone_ends_it_before_gmail_is_asked(account, google, fault):
    google.fault(f"token.{fault}")
    told = poll_mail(account)
    assert told["code"] == "needs-reconnect"
    assert used(google) == {"token": 1}
    assert Connection.objects.get().state == "needs_reconnect"
    assert Connection.objects.get().reason.startswith("scope_")
    poll_mail(account)
    assert google.google.count() == 1


@pytest.mark.one_database
@pytest.mark.parametrize("fault", ["other-mailbox", "mailbox-upper-case", "mailbox-dots"])
def test_another_mailbox_than_the_verified_one_is_not_read(account, google, fault):
    Connection.objects.update(address=ADDRESS, revision=F("revision") + 1)
    google.box.add(make_mail())
    google.fault(f"profile.{fault}")
    assert poll_mail(account)["code"] == "needs-reconnect"
    assert used(google) == {"token": 1, "profile": 1}
    assert Connection.objects.get().reason == "mailbox_differs"
    assert not Message.objects.exists()


def test_another_mailbox_than_the_accounts_user_name_is_not_read(account, google):
    accounts.update_account(account_id=account.pk, by=OPERATOR, username="other@gmail.test")
    told = poll_mail(account)
    assert (told["ok"], told["code"]) == (False, "gmail-profile-refused")
    assert "user name" in told["error"]
    assert not GmailMessage.objects.exists()
    accounts.update_account(account_id=account.pk, by=OPERATOR, username=ADDRESS)
    assert poll_mail(account)["ok"]


def test_another_mailbox_behind_the_account_is_read_from_its_own_beginning(settled, google):
    google.box.add(make_mail(subject="Mine"))
    polling.poll(account_id=settled.pk)
    google.person = google.google.add_person("other@gmail.test")
    google.person.mailbox.add(make_mail(subject="Theirs"))
    connect(settled, google)
    accounts.update_account(account_id=settled.pk, by=OPERATOR, username="other@gmail.test")
    report = polling.poll(account_id=settled.pk)
    assert (report.stored, report.first_pass) == (1, True)
    assert subjects() == ["Mine", "Theirs"]


def test_an_account_that_nobody_connected_is_not_asked_for(unconnected, google):
    told = poll_mail(unconnected)
    assert (told["ok"], told["code"]) == (False, "contact-refused")
    assert due.enqueue_polls() == 0
    assert google.google.count() == 0


def test_a_connection_that_is_revoked_in_a_pass_makes_no_further_contact(settled, google):
    for number in range(3):
        google.box.add(make_mail(subject=str(number)))
    _revoke_with_the_next_history()
    with pytest.raises(ContactRefused):
        polling.poll(account_id=settled.pk)
    assert used(google) == {"token": 1, "profile": 1, "history": 1}
    assert not Message.objects.exists()


def _revoke_with_the_next_history() -> None:
    """Somebody revokes the connection while the history is asked for."""
    real = registry.google()

    class Revoking:
        def __getattr__(self, name):
            return getattr(real, name)

        def history(self, **arguments):
            answer = real.history(**arguments)
            connections.revoke(
                connection_id=Connection.objects.get().pk, by=OPERATOR, reason="no longer"
            )
            return answer

    registry.register_google(Revoking())


@pytest.mark.fault("send-16")
def test_a_connection_that_is_revoked_is_shown_with_its_account_at_once(settled, google):
    connections.revoke(connection_id=Connection.objects.get().pk, by=OPERATOR, reason="no longer")
    settled.refresh_from_db()
    assert settled.state == "failing"
    assert "revoked" in settled.last_error
    assert kinds("account.failing") == 1
    Account.objects.update(next_poll_at=None)
    assert due.enqueue_polls() == 0
    assert google.google.count() == 0
    connect(settled, google)
    settled.refresh_from_db()
    assert settled.next_poll_at is None
    assert poll_mail(settled)["ok"]
    assert kinds("account.recovered") == 1


def test_an_account_that_is_switched_off_in_a_pass_makes_no_further_contact(settled, google):
    grant = gmail_reading.ReadingGrant(
        Connection.objects.get().pk, Connection.objects.get().revision, settled.pk
    )
    grant.spend(Contact.LIST)
    accounts.disable(account_id=settled.pk, by=OPERATOR)
    with pytest.raises(ContactRefused) as caught:
        grant.spend(Contact.LIST)
    assert caught.value.reason == "account_disabled"


@pytest.mark.parametrize("contact", [Contact.POST, Contact.USERINFO, Contact.GET])
def test_reading_can_never_send_or_prove_who_somebody_is(settled, contact):
    connection = Connection.objects.get()
    grant = gmail_reading.ReadingGrant(connection.pk, connection.revision, settled.pk)
    with pytest.raises(ContactRefused) as caught:
        grant.spend(contact)
    assert caught.value.reason == "not_for_reading"


def test_nothing_is_marked_moved_filed_or_sent(settled, google):
    lease = leases.acquire(account_id=settled.pk)
    with mailboxes.open_mailbox(account=settled, lease=lease) as mailbox:
        with pytest.raises(MailboxReadOnly, match="only read"):
            mailbox.append("INBOX", b"x", None)
        assert mailbox.find("one@example.org") == ()
        assert not hasattr(mailbox, "move")
    leases.release(lease=lease)
    transport = registry.transport("gmail")
    with pytest.raises(MailboxReadOnly):
        transport.open_mailbox(Endpoint("gmail.googleapis.com", 443))
    answer = transport.submission.send(
        Endpoint("gmail.googleapis.com", 443),
        envelope_from=ADDRESS,
        recipients=["a@b"],
        payload=b"",
    )
    assert (answer.outcome, answer.reason) == ("failed", "read-only")
    assert google.google.posts == 0


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host", "imap.example.org"),
        ("port", 993),
        ("provider", "generic"),
        ("secret_ref", "env:MAIL_SECRET"),
        ("smtp_host", "smtp.example.org"),
        ("sent_folder", "Sent"),
        ("archive_folder", "Archive"),
        ("username", "agent"),
    ],
)
def test_what_a_gmail_account_has_no_use_for_is_refused_by_name(settled, field, value):
    with pytest.raises(InvalidInput) as caught:
        accounts.update_account(account_id=settled.pk, by=OPERATOR, **{field: value})
    assert caught.value.field == field


def test_an_account_with_a_password_still_needs_one(db):
    with pytest.raises(InvalidInput) as caught:
        AccountFactory(secret_ref="")
    assert caught.value.field == "secret_ref"


def test_a_trial_says_whether_it_can_be_read_and_stores_nothing(account, google):
    google.box.add(make_mail())
    (check,) = accounts.test_connection(account_id=account.pk)
    assert (check.check, check.ok, check.detail) == ("login", True, ADDRESS)
    assert used(google) == {"token": 1, "profile": 1}
    google.issued.revoked = True
    (check,) = accounts.test_connection(account_id=account.pk)
    assert not check.ok
    assert "connect it again" in check.detail
    assert not GmailMessage.objects.exists()


def test_pages_that_go_round_in_a_circle_end_the_pass(settled, google):
    google.box.add(make_mail())
    google.fault("list.next-page")
    google.fault("history.gone", times=1)
    with pytest.raises(Exception, match="circle"):
        polling.poll(account_id=settled.pk)
    google.heal()
    assert polling.poll(account_id=settled.pk).stored == 1


def test_a_queue_that_polls_says_nothing_of_tokens(settled, google, caplog, capsys):
    google.box.add(make_mail())
    google.fault("message.garbage", times=1)
    poll_mail(settled)
    told = caplog.text + capsys.readouterr().out
    assert google.issued.credential.refresh_token.reveal() not in told
    assert "ya29" not in told


def test_a_watcher_leaves_alone_what_needs_a_person(settled, google):
    supervisor = watching._Supervisor(None)
    assert set(supervisor._wanted()) == {settled.pk}
    Connection.objects.update(state="needs_reconnect")
    assert supervisor._wanted() == {}


def test_a_watch_polls_every_interval_on_one_token(settled, google):
    lease = leases.acquire(account_id=settled.pk, watching=True)
    waker = Waker()
    with mailboxes.open_mailbox(account=settled, lease=lease) as mailbox:
        for number in range(3):
            google.box.add(make_mail(subject=str(number)))
            state = mailbox.select("INBOX")
            polling.poll_open(account=settled, lease=lease, mailbox=mailbox, state=state)
            assert not mailbox.idle(seconds=0.0, waker=waker)
    waker.close()
    assert subjects() == ["0", "1", "2"]
    assert used(google) == {"token": 1, "profile": 1, "history": 3, "message": 3}
