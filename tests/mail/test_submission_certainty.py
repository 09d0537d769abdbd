"""What is certain after an SMTP session that went wrong at each of its steps (ADR-016)."""

from __future__ import annotations

import pytest

from mail.gateways import smtp
from mail.gateways.base import Endpoint, SendOutcome
from tests.mail.factories import make_mail
from tests.mail.scripted_smtp import ScriptedSmtp

PAYLOAD = make_mail(text="One line.\n.hidden dot\n..two\n" + "x" * 70 + "\n")
SENDER, RECIPIENT, OTHER = "agent@agents.test", "alice@example.org", "bob@example.org"


@pytest.fixture
def server():
    made = ScriptedSmtp()
    yield made
    made.close()


def send(server: ScriptedSmtp, payload: bytes = PAYLOAD, recipients=(RECIPIENT,), endpoint=None):
    return smtp.SmtpSubmission().send(
        endpoint or server.endpoint,
        envelope_from=SENDER,
        recipients=list(recipients),
        payload=payload,
    )


def test_250_after_the_final_dot_is_accepted_and_the_bytes_are_exact(server):
    result = send(server)
    assert (result.outcome, result.reason, result.code) == (SendOutcome.ACCEPTED, "smtp-250", 250)
    assert result.final_dot_sent
    assert server.dots == 1
    unstuffed = b"".join(
        line[1:] if line.startswith(b".") else line for line in server.data.splitlines(True)
    )
    assert unstuffed == PAYLOAD


@pytest.mark.invariant(19)
@pytest.mark.parametrize(
    ("step", "answer", "reason"),
    [
        ("greeting", None, "not-connected"),
        ("greeting", b"554 go away\r\n", "refused-before-data"),
        ("ehlo", b"421 closing\r\n", "refused-before-data"),
        ("mail", b"550 not you\r\n", "sender-refused"),
        ("mail", None, "not-connected"),
        ("rcpt", b"550 nobody\r\n", "recipients-refused"),
        ("rcpt", None, "not-connected"),
        ("data", b"451 later\r\n", "data-refused"),
        ("data", b"250 strange\r\n", "data-refused"),
        ("data", None, "not-connected"),
    ],
)
def test_what_ends_before_data_began_is_certainly_not_sent(server, step, answer, reason):
    server.answers[step] = answer
    if step == "ehlo":
        server.answers["helo"] = answer
    result = send(server)
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, reason)
    assert not result.final_dot_sent
    assert server.dots == 0


@pytest.mark.parametrize("reply", [b"451 later\r\n", b"550 spam\r\n", b"421 closing\r\n"])
def test_a_refusal_after_the_dot_is_failed(server, reply):
    server.answers["dot"] = reply
    result = send(server)
    assert result.outcome is SendOutcome.FAILED
    assert (result.reason, result.code) == ("refused-after-data", int(reply[:3]))
    assert result.final_dot_sent


@pytest.mark.invariant(19)
@pytest.mark.fault("send-02")
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (None, "connection-lost-after-data"),
        (b"nonsense\r\n", "unexpected-reply"),
        (b"251 perhaps\r\n", "unexpected-reply"),
        (b"354 more\r\n", "unexpected-reply"),
    ],
)
def test_anything_else_after_the_dot_is_unknown(server, reply, reason):
    server.answers["dot"] = reply
    result = send(server)
    assert (result.outcome, result.reason) == (SendOutcome.UNKNOWN, reason)
    assert result.final_dot_sent
    assert server.sessions == 1


@pytest.mark.parametrize(
    ("early", "outcome", "reason"),
    [
        (b"250 taken\r\n", SendOutcome.UNKNOWN, "unexpected-reply"),
        (b"451 stop\r\n", SendOutcome.FAILED, "refused-after-data"),
        (b"", SendOutcome.ACCEPTED, "smtp-250"),
    ],
)
def test_an_answer_that_came_before_the_dot_is_not_taken_for_its_answer(
    server, early, outcome, reason
):
    """A server that is one answer ahead would have us believe what it said of nothing yet."""
    server.answers["data"] = b"354 go on\r\n" + early
    result = send(server)
    assert (result.outcome, result.reason) == (outcome, reason)
    assert result.final_dot_sent == (server.dots == 1) == (not early)


def test_no_message_begins_after_the_sessions_time(server, monkeypatch):
    """A server that says one byte now and then would hold a session open past its deadline."""
    monkeypatch.setattr(smtp, "SESSION_SECONDS", 0.0)
    result = send(server)
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, "not-connected")
    assert not [command for command in server.commands if command.startswith(b"MAIL")]
    assert server.dots == 0


def test_no_message_begins_once_the_job_has_no_time_left(server):
    result = smtp.SmtpSubmission().send(
        server.endpoint,
        envelope_from="agent@agents.test",
        recipients=(RECIPIENT,),
        payload=PAYLOAD,
        seconds=-1.0,
    )
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, "not-connected")
    assert (server.sessions, server.dots) == (0, 0)


@pytest.mark.fault("send-02")
def test_a_connection_that_breaks_inside_the_data_is_unknown_and_the_dot_never_left(server):
    server.answers["ehlo"] = b"250 here\r\n"
    server.cut_after = 100_000
    result = send(server, payload=make_mail(text=("y" * 70 + "\n") * 100_000))
    assert (result.outcome, result.reason) == (SendOutcome.UNKNOWN, "connection-lost-in-data")
    assert not result.final_dot_sent
    assert server.dots == 0


@pytest.mark.invariant(19)
@pytest.mark.fault("send-03")
def test_a_slow_success_is_waited_for_and_never_repeated(server, monkeypatch):
    monkeypatch.setattr(smtp, "FINAL_SECONDS", 1.0)
    assert smtp.STEP_SECONDS <= 30 < smtp.SESSION_SECONDS <= 120
    server.answers["dot"] = b""  # says nothing
    result = send(server)
    assert (result.outcome, result.reason) == (SendOutcome.UNKNOWN, "connection-lost-after-data")
    assert (server.dots, server.sessions) == (1, 1)


def test_partial_refusals_are_recorded_and_the_rest_is_sent(server):
    server.by_recipient[OTHER] = b"550 5.1.1 nobody here\r\n"
    result = send(server, recipients=(RECIPIENT, OTHER))
    assert result.outcome is SendOutcome.ACCEPTED
    assert result.refused == {OTHER: "550 5.1.1 nobody here"}


def test_without_starttls_nothing_is_said_to_a_server_that_is_not_allowed_plain_text(server):
    endpoint = Endpoint("127.0.0.1", server.port, "user", "secret")
    result = send(server, endpoint=endpoint)
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, "tls-required")
    assert not any(command.upper().startswith((b"AUTH", b"MAIL")) for command in server.commands)


@pytest.mark.invariant(23)
@pytest.mark.parametrize("bare", [b"a\nb\r\n", b"a\rb\r\n", b"x\r\n.\n", b"\r\r\n"])
def test_a_payload_with_a_bare_cr_or_lf_is_refused_before_any_contact(server, bare):
    result = send(server, payload=b"Subject: x\r\n\r\n" + bare)
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, "payload-not-canonical")
    assert server.sessions == 0


@pytest.mark.invariant(23)
@pytest.mark.parametrize("address", ["a@b\r\nRCPT TO:<c@d>", "a b@c", "<a@b>", "nobody", ""])
def test_an_address_that_would_be_another_command_is_refused_before_any_contact(server, address):
    result = send(server, recipients=(address,))
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, "address-invalid")
    assert server.sessions == 0


def test_a_message_above_the_servers_limit_is_refused_before_data(server):
    server.answers["ehlo"] = b"250-here\r\n250 SIZE 100\r\n"
    assert send(server).reason == "message-too-large"


def test_eight_bit_bytes_need_a_server_that_takes_them(server):
    payload = b"Subject: x\r\n\r\n\xc3\xa4\r\n"
    assert send(server, payload=payload).outcome is SendOutcome.ACCEPTED
    assert any(b"BODY=8BITMIME" in command for command in server.commands)
    server.answers["ehlo"] = b"250 here\r\n"
    assert send(server, payload=payload).reason == "eight-bit-not-supported"


def test_nobody_listening_is_certain():
    result = smtp.SmtpSubmission().send(
        Endpoint("127.0.0.1", 1), envelope_from=SENDER, recipients=[RECIPIENT], payload=PAYLOAD
    )
    assert (result.outcome, result.reason) == (SendOutcome.FAILED, "not-connected")
