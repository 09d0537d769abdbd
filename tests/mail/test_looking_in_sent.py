"""Mail of unknown outcome is looked for in Sent, where only the server files it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from approvals.models import Effect, Job, Observation
from approvals.services import approvals as approval_services
from approvals.services import effects, holds, recovery
from guards.models import Identity
from guards.types import SYSTEM, Asker, Subject
from mail import readback
from mail.exceptions import ConnectionLost, ReplyRefused
from mail.gateways.base import SendOutcome, SubmissionResult
from mail.models import Message, Outbound
from mail.services import accounts, filing, outbound, polling, sent_copies
from tests.approvals.looking import columns, session
from tests.mail.factories import OPERATOR, make_mail

pytestmark = pytest.mark.django_db

USER = "agent@agents.test"
SENT = make_mail(message_id="x@y")
LOST = SubmissionResult(SendOutcome.UNKNOWN, "connection-lost-after-data", final_dot_sent=True)


@pytest.fixture
def compose(account, mail_server, monkeypatch):
    """Draft a reply from an account with the given settings; `files` says what Sent gets of it."""
    monkeypatch.setattr(readback, "PAUSE_SECONDS", 0.0)
    polling.poll(account_id=account.pk)
    folder = mail_server.folder(USER, "Sent")

    def draft(files: Callable[[bytes], list[bytes]] | None = None, **settings) -> Outbound:
        if files is not None:
            mail_server.sent = _Filing(folder, files)
        accounts.update_account(account_id=account.pk, by=OPERATOR, sent_folder="Sent", **settings)
        mail_server.deliver(USER, make_mail())
        polling.poll(account_id=account.pk)
        return outbound.draft_reply(
            message_id=Message.objects.latest("pk").pk,
            text="The answer.\n",
            origin=Subject("pipelines.pipeline", str(uuid.uuid4())),
            executes=True,
        )

    return draft


class _Filing(list):
    """What the server took, and what it files of that."""

    def __init__(self, folder, files) -> None:
        super().__init__()
        self._folder, self._files = folder, files

    def append(self, mail) -> None:
        super().append(mail)
        for copy in self._files(mail.payload):
            self._folder.add(copy, timezone.now())


@pytest.fixture
def unknown(compose, mail_server):
    """A reply whose answer was lost after the last byte."""

    def send(files: Callable[[bytes], list[bytes]], **settings) -> Effect:
        draft = compose(files, **{"server_files_sent": True, **settings})
        mail_server.next_result, mail_server.taken_with_next_result = LOST, True
        sent = outbound.submit(outbound_id=draft.pk, asker=SYSTEM)
        assert (sent.status, len(mail_server.sent)) == ("unknown", 1)
        mail_server.logins = 0
        return sent.effect

    return send


def look(effect: Effect) -> Job:
    """Any operator, in a session of his own."""
    job = recovery.look_again(
        effect_id=effect.pk,
        by=Asker("operator", "bea"),
        root=session("bea"),
        request_id=uuid.uuid4(),
    )
    return recovery.run(job_id=job.pk)


def spent(job: Job) -> dict[str, int]:
    return {b.contact: b.spent for b in job.consent.budgets.all() if b.spent}


@pytest.mark.invariant(20)
def test_the_servers_own_copy_is_observed_and_the_mail_stays_unknown(unknown, mail_server):
    effect = unknown(lambda raw: [b"Received: by us\r\n" + raw])
    before = columns(effect)
    job = look(effect)
    assert (job.outcome, job.reason) == ("verified_sent_observation", "sent-copy-matches")
    assert columns(effect) == {**before, "revision": effect.revision + 1}
    assert Outbound.objects.get(effect=effect).status == "unknown"
    assert spent(job) == {"list": 1, "get": 1}
    assert (mail_server.logins, mail_server.submissions) == (1, 1)


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("folder", "proves"),
    [("Sent", True), ("", False), ("INBOX", False), ("inbox", False), ("Work", False)],
)
def test_a_copy_proves_nothing_where_mail_arrives(account, folder: str, proves: bool):
    account.folder, account.sent_folder, account.server_files_sent = "Work", folder, True
    assert readback.can_look(account) is proves
    account.server_files_sent = False
    assert not readback.can_look(account)


def _other_id(raw: bytes) -> bytes:
    """Another message whose Message-ID holds ours."""
    return raw.replace(b"Message-ID: <", b"Message-ID: <re-")


@pytest.mark.one_database
@pytest.mark.invariant(20)
@pytest.mark.parametrize(
    ("files", "reason", "opened"),
    [
        (lambda raw: [], "not_found", 0),
        (lambda raw: [raw, raw], "several_candidates", 2),
        (lambda raw: [raw] * 6, "too_many_candidates", 0),
        (lambda raw: [raw.replace(b"The answer", b"An answer")], "mismatch", 1),
        (lambda raw: [raw.replace(b"Subject: ", b"Subject: Not ")], "mismatch", 1),
        (lambda raw: [raw + b"x" * 200_000], "mismatch", 0),
        (lambda raw: [_other_id(raw)], "not_found", 1),
    ],
)
def test_anything_but_one_strict_match_proves_nothing(unknown, mail_server, files, reason, opened):
    effect = unknown(files)
    before = columns(effect)
    job = look(effect)
    assert (job.outcome, job.reason) == ("unknown_observation", reason)
    assert spent(job).get("get", 0) == opened
    assert columns(effect) == {**before, "revision": effect.revision + 1}
    assert mail_server.submissions == 1


@pytest.mark.one_database
def test_another_message_beside_it_is_no_second_copy(unknown):
    effect = unknown(lambda raw: [_other_id(raw), raw])
    assert look(effect).outcome == "verified_sent_observation"


@pytest.mark.one_database
@pytest.mark.parametrize("settings", [{"server_files_sent": False}, {"sent_folder": ""}])
def test_where_only_we_would_file_a_copy_nobody_is_contacted(
    unknown, mail_server, account, settings
):
    effect = unknown(lambda raw: [raw])
    accounts.update_account(account_id=account.pk, by=OPERATOR, **settings)
    job = look(effect)
    assert (job.outcome, job.reason) == ("unknown_observation", "nothing_to_look_at")
    assert (mail_server.logins, spent(job)) == (0, {})


@pytest.mark.one_database
@pytest.mark.parametrize("fault", ["down", "broken", "vanished", "no folder", "no password"])
def test_a_server_that_fails_during_a_look_proves_nothing(
    unknown, mail_server, monkeypatch, account, fault
):
    effect = unknown(lambda raw: [raw])
    (uid,) = mail_server.folder(USER, "Sent").messages
    expected = {
        "down": "mail-connection-lost",
        "broken": "incomplete",
        "vanished": "incomplete",
        "no folder": "mail-folder-unavailable",
        "no password": "secret-unavailable",
    }[fault]
    if fault == "down":
        mail_server.down = True
    elif fault == "broken":
        mail_server.broken_uids = {uid}
    elif fault == "vanished":
        mail_server.withheld_uids = {uid}
    elif fault == "no folder":
        del mail_server.folders[USER, "Sent"]
    else:
        monkeypatch.delenv("MAIL_SECRET")
    job = look(effect)
    assert (job.outcome, job.reason) == ("unknown_observation", expected)
    assert Observation.objects.get().detail["reason"] == expected
    assert ConnectionLost.code == "mail-connection-lost"


# --- in whose name, and to whom: what the envelope says and what is told of it ---


@pytest.mark.one_database
def test_a_copy_to_oneself_is_a_recipient_that_is_shown_and_in_no_header(
    compose, mail_server, account
):
    Identity.objects.filter(pk=account.identity_id).update(reply_policy="approve")
    draft = outbound.submit(outbound_id=compose(bcc_self=True).pk, asker=SYSTEM)
    approval = holds.open_for_review(hold_id=draft.hold_id, by=OPERATOR)
    from approvals import selectors

    shown = selectors.preview(approval)
    assert (shown["to"], shown["bcc"]) == (["alice@example.org"], [USER])
    effect = approval_services.approve(
        approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
    )
    effects.dispatch(effect_id=effect.pk)
    (taken,) = mail_server.sent
    assert taken.recipients == ("alice@example.org", USER)
    assert b"bcc" not in taken.payload.lower()


@pytest.mark.one_database
def test_switching_the_copy_on_voids_what_was_shown_without_it(compose, mail_server, account):
    Identity.objects.filter(pk=account.identity_id).update(reply_policy="approve")
    draft = outbound.submit(outbound_id=compose().pk, asker=SYSTEM)
    approval = holds.open_for_review(hold_id=draft.hold_id, by=OPERATOR)
    accounts.update_account(account_id=account.pk, by=OPERATOR, bcc_self=True)
    from approvals.exceptions import ApprovalSuperseded

    with pytest.raises(ApprovalSuperseded):
        approval_services.approve(
            approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
        )
    assert mail_server.submissions == 0


@pytest.mark.one_database
def test_some_refused_recipients_are_named_beside_those_that_were_taken(
    compose, mail_server, account
):
    mail_server.refused_recipients = {USER}
    sent = outbound.submit(outbound_id=compose(bcc_self=True).pk, asker=SYSTEM)
    assert sent.effect.phase == "accepted"
    assert sent.effect.detail["refused"] == {USER: "550 no such user"}
    assert sent.effect.detail["taken"] == ["alice@example.org"]


@pytest.mark.one_database
def test_a_copy_to_oneself_never_stands_for_a_message_that_nobody_else_gets(compose, mail_server):
    mail_server.refused_recipients = {"alice@example.org"}
    sent = outbound.submit(outbound_id=compose(bcc_self=True).pk, asker=SYSTEM)
    assert (sent.status, sent.reason) == ("failed", "recipients-refused")
    assert sent.effect.detail["refused"] == {"alice@example.org": "550 no such user"}
    assert mail_server.sent == []


# --- whether a server files what it sends: read off what lies in Sent ---


def _sent_copies(account) -> tuple[bool, str]:
    Outbound.objects.update(settled_at=timezone.now() - timedelta(minutes=5))
    checks = {one.check: one for one in accounts.test_connection(account_id=account.pk)}
    found = checks.get("Sent copies")
    return (found.ok, found.detail) if found else (True, "")


def _read_off_the_server(*cases) -> list:
    """Cases that a database has no part in."""
    return [pytest.param(*case, marks=pytest.mark.one_database) for case in cases]


@pytest.mark.parametrize(
    ("declared", "files", "ok", "says"),
    [
        (True, lambda raw: [raw], True, "filed 1 of the last 1"),
        *_read_off_the_server(
            (True, lambda raw: [], False, "does not file them"),
            (True, lambda raw: [raw.replace(b"answer", b"reply")], False, "does not file them"),
            (False, lambda raw: [raw], False, "the server itself filed 1"),
            (False, lambda raw: [], True, "filed by us"),
        ),
    ],
)
def test_what_lies_in_sent_shows_whether_the_server_files_it(
    compose, account, declared, files, ok, says
):
    draft = compose(files, server_files_sent=declared)
    sent = outbound.submit(outbound_id=draft.pk, asker=SYSTEM)
    filing.file_sent(outbound_id=sent.pk)
    found, detail = _sent_copies(account)
    assert (found, says in detail) == (ok, True), detail


@pytest.mark.one_database
def test_a_copy_of_ours_beside_the_servers_still_shows_it(compose, account, mail_server):
    """The server files it a moment after us: one more than we appended."""
    sent = outbound.submit(
        outbound_id=compose(lambda raw: [], server_files_sent=False).pk, asker=SYSTEM
    )
    assert filing.file_sent(outbound_id=sent.pk)
    assert _sent_copies(account)[0]
    mail_server.folder(USER, "Sent").add(mail_server.sent[0].payload, timezone.now())
    assert "the server itself filed" in _sent_copies(account)[1]


@pytest.mark.one_database
def test_without_a_message_or_a_folder_nothing_is_shown(compose, account):
    compose(server_files_sent=True)
    assert "not shown yet" in _sent_copies(account)[1]
    accounts.update_account(account_id=account.pk, by=OPERATOR, sent_folder="")
    assert _sent_copies(account) == (
        False,
        "name the Sent folder: without it nothing that was sent can be verified",
    )
    accounts.update_account(account_id=account.pk, by=OPERATOR, server_files_sent=False)
    assert _sent_copies(account) == (True, "")
    assert sent_copies.RECENT == 5


def test_a_copy_that_is_being_filed_proves_nothing_whatever_becomes_of_it(
    compose, account, mail_server
):
    sent = outbound.submit(
        outbound_id=compose(lambda raw: [], server_files_sent=False).pk, asker=SYSTEM
    )
    filing._note_filing(sent)  # and the process died before it could append, or right after
    mail_server.folder(USER, "Sent").add(mail_server.sent[0].payload, timezone.now())
    assert _sent_copies(account)[0]


@pytest.mark.one_database
def test_the_copy_that_comes_back_to_us_starts_nothing_and_is_never_answered(
    compose, account, mail_server
):
    sent = outbound.submit(outbound_id=compose(bcc_self=True).pk, asker=SYSTEM)
    assert sent.status == "accepted"
    polling.poll(account_id=account.pk)
    copy = Message.objects.get(message_id=sent.message_id)
    assert (copy.sender, copy.action) == (USER, "surface")
    with pytest.raises(ReplyRefused) as refused:
        outbound.draft_reply(
            message_id=copy.pk,
            text="Thank you.\n",
            origin=Subject("pipelines.pipeline", str(uuid.uuid4())),
            executes=True,
        )
    assert refused.value.rule in {"auto-submitted", "own-address"}


class _Granted:
    """A grant for a mailbox by itself, which counts."""

    def __init__(self) -> None:
        self.spent: list[str] = []

    def spend(self, contact) -> None:
        self.spent.append(str(contact))

    def seconds_left(self) -> float:
        return 100.0


def _filed(sent: bytes) -> dict[str, list[bytes]]:
    """What a look says, and what the server has filed then."""
    return {
        "exact": [sent],
        "traced": [b"Received: by us\r\n" + sent],
        "several_candidates": [sent, sent],
        "mismatch": [sent.replace(b"A line", b"A lime")],
        "not_found": [make_mail(message_id="another@y")],
    }


@pytest.mark.one_database
def test_servers_that_really_search_say_the_same(box, subtests):
    for name in _filed(SENT):
        says = readback.MATCHES if name in ("exact", "traced") else name
        with subtests.test(name):
            wanted = f"{name}@y"
            sent = make_mail(message_id=wanted)
            for raw in _filed(sent)[name]:
                box.deliver(raw)
            grant = _Granted()
            with box.transport.open_mailbox(box.endpoint) as mailbox:
                mailbox.select("INBOX")
                uids = mailbox.find(wanted)
                assert readback._judged(mailbox, uids, wanted, sent, grant) == says
            assert grant.spent == ["get"] * len(uids)
