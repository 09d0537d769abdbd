"""What every way out promises: memory, STARTTLS with login, and implicit TLS."""

from __future__ import annotations

import dataclasses

import pytest

from mail.exceptions import TransportError
from mail.gateways.base import Endpoint, SendOutcome
from mail.gateways.memory import MemoryServer, MemoryTransport
from mail.gateways.smtp import SmtpSubmission
from tests.mail.factories import make_mail
from tests.servers.presence import missing
from tests.servers.smtp import PASSWORD, USER

SENDER, RECIPIENT, OTHER = "agent@agents.test", "alice@example.org", "bob@example.org"


class _Real:
    """A submission over TLS to the recording server."""

    def __init__(self, server, port):
        self.submission = SmtpSubmission()
        self.endpoint = Endpoint(server.host, port, USER, PASSWORD, skip_verify=True)
        self._server = server

    def refuse(self, address):
        self._server.faults.refuse_recipients[address] = "550 no such user"

    def taken(self):
        return [(one.sender, tuple(one.recipients), one.content) for one in self._server.accepted]


class _Memory:
    """The memory sibling."""

    def __init__(self):
        self._server = MemoryServer(**{USER: PASSWORD})
        self.submission = MemoryTransport(self._server).submission
        self.endpoint = Endpoint("127.0.0.1", 1587, USER, PASSWORD)

    def refuse(self, address):
        self._server.refused_recipients.add(address)

    def taken(self):
        return [(one.envelope_from, one.recipients, one.payload) for one in self._server.sent]


@pytest.fixture(params=["memory", "starttls", "implicit"])
def way_out(request):
    if request.param == "memory":
        return _Memory()
    server = request.getfixturevalue("smtp_server")
    port = server.smtp_port if request.param == "starttls" else server.smtps_port
    if port is None:
        missing("the right to bind port 465")
    return _Real(server, port)


def send(way_out, payload, recipients=(RECIPIENT,), **endpoint):
    return way_out.submission.send(
        dataclasses.replace(way_out.endpoint, **endpoint),
        envelope_from=SENDER,
        recipients=recipients,
        payload=payload,
    )


def test_accepted_mail_arrives_once_byte_for_byte(way_out):
    payload = make_mail(text=".dot\n..two\nlast\n")
    result = send(way_out, payload)
    assert result.outcome is SendOutcome.ACCEPTED
    assert result.reason == "smtp-250"
    assert result.final_dot_sent
    assert way_out.taken() == [(SENDER, (RECIPIENT,), payload)]


def test_refused_recipients_are_named_and_the_rest_arrives(way_out):
    way_out.refuse(OTHER)
    result = send(way_out, make_mail(), (RECIPIENT, OTHER))
    assert result.outcome is SendOutcome.ACCEPTED
    assert list(result.refused) == [OTHER]
    assert [recipients for _, recipients, _ in way_out.taken()] == [(RECIPIENT,)]


def test_when_all_are_refused_nothing_arrives_and_that_is_certain(way_out):
    way_out.refuse(RECIPIENT)
    result = send(way_out, make_mail())
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, "recipients-refused")
    assert way_out.taken() == []


def test_a_wrong_password_is_certain_failure(smtp_server):
    way_out = _Real(smtp_server, smtp_server.smtp_port)
    result = send(way_out, make_mail(), password="wrong")
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, "login-refused")
    assert smtp_server.accepted == []


def test_a_certificate_that_does_not_verify_ends_the_session_before_login(smtp_server):
    way_out = _Real(smtp_server, smtp_server.smtp_port)
    result = send(way_out, make_mail(), skip_verify=False)
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, "certificate-refused")
    assert smtp_server.accepted == []


def test_an_imap_certificate_that_does_not_verify_is_refused(dovecot_box):
    strict = dataclasses.replace(dovecot_box.endpoint, skip_verify=False)
    with pytest.raises(TransportError) as caught:
        dovecot_box.transport.open_mailbox(strict)
    assert caught.value.code == "mail-certificate-refused"


def test_port_993_is_tls_from_the_first_byte(dovecot):
    from mail.gateways.imap import ImapTransport
    from tests.servers.dovecot import PASSWORD as MAILBOX_PASSWORD

    if dovecot.imaps_port is None:
        missing("the right to bind port 993")
    user = dovecot.new_user()
    raw = make_mail()
    dovecot.append(user, raw)
    endpoint = Endpoint(dovecot.host, 993, user, MAILBOX_PASSWORD, skip_verify=True)
    with ImapTransport().open_mailbox(endpoint) as mailbox:
        mailbox.select("INBOX")
        assert [m.raw for m in mailbox.fetch(mailbox.uids_after(0)).messages] == [raw]


@pytest.mark.fault("send-03")
def test_a_server_that_answers_late_gets_one_message_in_one_session(smtp_server):
    smtp_server.faults.delay_after_data = 0.5
    way_out = _Real(smtp_server, smtp_server.smtp_port)
    assert send(way_out, make_mail()).outcome is SendOutcome.ACCEPTED
    assert smtp_server.data_seen == 1


@pytest.mark.invariant(19)
@pytest.mark.fault("send-02")
def test_a_server_that_takes_the_mail_and_drops_the_line_leaves_it_unknown(smtp_server):
    smtp_server.faults.drop_after_data = True
    way_out = _Real(smtp_server, smtp_server.smtp_port)
    result = send(way_out, make_mail())
    assert result.outcome is SendOutcome.UNKNOWN
    assert result.final_dot_sent
    assert smtp_server.data_seen == 1


def test_a_trial_without_a_message_says_whether_it_is_let_in(way_out):
    assert way_out.submission.refusal(way_out.endpoint, envelope_from=SENDER) is None
    wrong = dataclasses.replace(way_out.endpoint, password="wrong")
    refusal = way_out.submission.refusal(wrong, envelope_from=SENDER)
    assert (refusal.reason, refusal.code) == ("login-refused", 535)
    assert not way_out.taken()


@pytest.mark.parametrize("refused", [(), (OTHER,), (RECIPIENT,)])
def test_copies_go_beside_the_recipients_and_never_without_them(way_out, refused):
    for address in refused:
        way_out.refuse(address)
    payload = make_mail()
    result = way_out.submission.send(
        way_out.endpoint,
        envelope_from=SENDER,
        recipients=(RECIPIENT,),
        copies=(OTHER,),
        payload=payload,
    )
    if RECIPIENT in refused:
        assert (result.outcome, list(result.refused)) == (SendOutcome.FAILED, [RECIPIENT])
        assert (result.reason, result.code) == ("recipients-refused", 550)
        assert (way_out.taken(), result.taken) == ([], ())
        return
    expected = tuple(one for one in (RECIPIENT, OTHER) if one not in refused)
    assert result.outcome is SendOutcome.ACCEPTED
    assert result.taken == expected
    assert list(result.refused) == list(refused)
    ((_, recipients, content),) = way_out.taken()
    assert (recipients, content) == (expected, payload)
