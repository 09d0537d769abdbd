"""SMTP through smtplib, driven step by step so that we know exactly what is certain.

`failed` only where the server refused, or where its DATA certainly did not begin; `accepted` only
for 250 after the final dot; anything between is `unknown`, and nobody tries again (ADR-016).
"""

from __future__ import annotations

import re
import smtplib
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from mail.gateways import tls
from mail.gateways.base import SESSION_SECONDS, Endpoint, SendOutcome, SubmissionResult
from mail.types import SendReason

#: Seconds for any one answer before the final dot.
STEP_SECONDS = 30.0
#: Seconds for the answer to the final dot: servers scan and store before they say 250.
FINAL_SECONDS = 60.0

_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_ADDRESS = re.compile(r"[^\s<>\0-\x1f\x7f]+@[^\s<>\0-\x1f\x7f]+")


class _Ended(Exception):
    """The session is over before DATA began: certain, so `failed`."""

    def __init__(
        self,
        reason: SendReason,
        code: int | None = None,
        reply: bytes | str = b"",
        refused: dict[str, str] | None = None,
    ) -> None:
        super().__init__(reason)
        failed = SendOutcome.FAILED
        self.result = SubmissionResult(failed, reason, code, _text(reply), refused or {})


class SmtpSubmission:
    """Submits to a mail server: TLS from the first byte on 465, STARTTLS elsewhere."""

    def send(
        self,
        endpoint: Endpoint,
        *,
        envelope_from: str,
        recipients: Sequence[str],
        payload: bytes,
        copies: Sequence[str] = (),
        seconds: float = SESSION_SECONDS,
    ) -> SubmissionResult:
        """One session, one message, one result."""
        session: _Session | None = None
        try:
            _check(envelope_from, recipients, payload, copies)
            session = _Session(endpoint, envelope_from, min(seconds, SESSION_SECONDS))
            session.authenticate()
            refused = session.offer(recipients, copies, payload)
            session.begin_data()
        except _Ended as ended:
            return ended.result
        except (smtplib.SMTPException, OSError, ValueError) as error:
            return _before_data(error)
        else:
            taken = tuple(one for one in (*recipients, *copies) if one not in refused)
            return replace(session.deliver(payload, refused), taken=taken)
        finally:
            if session is not None:
                session.close()

    def refusal(self, endpoint: Endpoint, *, envelope_from: str) -> SubmissionResult | None:
        """A session without a message: it ends after the login."""
        session: _Session | None = None
        try:
            _check(envelope_from, (envelope_from,), b"")
            session = _Session(endpoint, envelope_from, SESSION_SECONDS)
            session.authenticate()
        except _Ended as ended:
            return ended.result
        except (smtplib.SMTPException, OSError, ValueError) as error:
            return _before_data(error)
        finally:
            if session is not None:
                session.close()
        return None


class _Session:
    """One connection. Until `begin_data` has returned, every failure is certain."""

    def __init__(self, endpoint: Endpoint, envelope_from: str, seconds: float) -> None:
        self._endpoint = endpoint
        self._envelope_from = envelope_from
        self._seconds = seconds
        self._ends_at = time.monotonic() + seconds
        # Our own name from the address we send as: a look-up of this host may hang, and tells.
        self._name = envelope_from.rpartition("@")[2].encode("idna").decode("ascii")
        self._smtp = self._connect()

    def authenticate(self) -> None:
        """AUTH where the account has a user name."""
        endpoint = self._endpoint
        if not endpoint.username:
            return
        self._limit(STEP_SECONDS)
        try:
            self._smtp.login(endpoint.username, endpoint.password)
        except smtplib.SMTPAuthenticationError as error:
            raise _Ended(SendReason.LOGIN_REFUSED, error.smtp_code, error.smtp_error) from error

    def offer(
        self, recipients: Sequence[str], copies: Sequence[str], payload: bytes
    ) -> dict[str, str]:
        """MAIL and RCPT; who was refused. With all recipients refused the session ends here."""
        options = self._options((*recipients, *copies), payload)
        answer, said = self._command("mail", self._envelope_from, options)
        if answer != 250:
            raise _Ended(SendReason.SENDER_REFUSED, answer, said)
        refused = self._offer_each(recipients)
        if len(refused) == len(set(recipients)):
            # A copy of our own must not stand for a message that nobody else will get.
            code, _, reply = refused[recipients[-1]].partition(" ")
            raise _Ended(SendReason.RECIPIENTS_REFUSED, int(code), reply, refused)
        return refused | self._offer_each(copies)

    def _offer_each(self, addresses: Sequence[str]) -> dict[str, str]:
        refused: dict[str, str] = {}
        for address in dict.fromkeys(addresses):
            code, reply = self._command("rcpt", address)
            if code not in (250, 251):
                refused[address] = f"{code} {_text(reply)}"
        return refused

    def begin_data(self) -> None:
        """DATA: anything but 354 is certain not to be an acceptance."""
        self._limit(STEP_SECONDS)
        code, reply = self._smtp.docmd("DATA")
        if code != 354:
            raise _Ended(SendReason.DATA_REFUSED, code, reply)

    def deliver(self, payload: bytes, refused: dict[str, str]) -> SubmissionResult:
        """The bytes, then the final dot, then the one answer that counts."""
        stuffed = re.sub(rb"(?m)^\.", b"..", payload)
        ending = b"" if stuffed.endswith(b"\r\n") else b"\r\n"
        dot_sent = False
        try:
            self._limit(STEP_SECONDS)
            self._smtp.send(stuffed + ending)
            if self._was_answered_early():
                return _out_of_turn(*self._smtp.getreply(), refused)
            self._limit(STEP_SECONDS)
            # From here on the server may hold the whole message, even if the write should fail.
            dot_sent = True
            self._smtp.send(b".\r\n")
            self._limit(FINAL_SECONDS)
            code, reply = self._smtp.getreply()
        except (smtplib.SMTPException, OSError) as error:
            return SubmissionResult(
                SendOutcome.UNKNOWN,
                SendReason.CONNECTION_LOST_AFTER_DATA
                if dot_sent
                else SendReason.CONNECTION_LOST_IN_DATA,
                reply=_text(str(error)),
                refused=refused,
                final_dot_sent=dot_sent,
            )
        return _final(code, reply, refused)

    def _was_answered_early(self) -> bool:
        """Whether an answer waits before the message has ended: it cannot be about the message."""
        connection, file = self._smtp.sock, self._smtp.file
        if connection is None or file is None:
            return False
        connection.settimeout(0)
        try:
            return bool(file.peek(1))
        except OSError:
            return False  # nothing there; a broken line shows at the next step
        finally:
            self._limit(STEP_SECONDS)

    def close(self) -> None:
        """QUIT is a courtesy; its answer changes nothing."""
        with suppress(smtplib.SMTPException, OSError, ValueError):
            if self._smtp.sock is not None:
                self._smtp.sock.settimeout(2.0)
            self._smtp.quit()
        with suppress(OSError):
            self._smtp.close()

    def _connect(self) -> smtplib.SMTP:
        endpoint, context = self._endpoint, tls.context(self._endpoint)
        timeout = self._left(STEP_SECONDS)
        if endpoint.port == tls.SMTPS:
            made: smtplib.SMTP = smtplib.SMTP_SSL(
                endpoint.host,
                endpoint.port,
                local_hostname=self._name,
                timeout=timeout,
                context=context,
            )
            made.ehlo_or_helo_if_needed()
            return made
        made = smtplib.SMTP(
            endpoint.host, endpoint.port, local_hostname=self._name, timeout=timeout
        )
        try:
            _secure(made, endpoint, context)
        except BaseException:
            made.close()
            raise
        return made

    def _options(self, recipients: Sequence[str], payload: bytes) -> list[str]:
        """ESMTP parameters that these bytes and addresses need, where the server has them."""
        options: list[str] = []
        limit = self._smtp.esmtp_features.get("size", "")
        if self._smtp.has_extn("size"):
            if limit.isdigit() and 0 < int(limit) < len(payload):
                raise _Ended(SendReason.MESSAGE_TOO_LARGE, reply=f"the server takes {limit} bytes")
            options.append(f"SIZE={len(payload)}")
        if not payload.isascii():
            if not self._smtp.has_extn("8bitmime"):
                raise _Ended(SendReason.EIGHT_BIT_NOT_SUPPORTED)
            options.append("BODY=8BITMIME")
        if not all(address.isascii() for address in (self._envelope_from, *recipients)):
            if not self._smtp.has_extn("smtputf8"):
                raise _Ended(SendReason.INTERNATIONAL_ADDRESS_NOT_SUPPORTED)
            self._smtp.command_encoding = "utf-8"
            options.append("SMTPUTF8")
        return options

    def _command(self, verb: str, address: str, options: Sequence[str] = ()) -> tuple[int, bytes]:
        self._limit(STEP_SECONDS)
        if verb == "mail":
            return self._smtp.mail(address, list(options))
        return self._smtp.rcpt(address)

    def _limit(self, seconds: float) -> None:
        """Bound the next step by its own time and by what is left of the session's.

        TimeoutError once that is over: a timeout of the socket is one of each byte, and whoever
        waits for this act will by then have called it unknown, and may have made another.
        """
        left = self._left(seconds)
        if self._smtp.sock is not None:
            self._smtp.sock.settimeout(left)

    def _left(self, seconds: float) -> float:
        """What the next step may take; at least a second, so that no socket is made to poll."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the session took longer than {self._seconds:.0f} seconds")
        return max(1.0, min(seconds, left))


def _secure(made: smtplib.SMTP, endpoint: Endpoint, context: ssl.SSLContext) -> None:
    """STARTTLS, required: only a literal loopback server may lack it, where a setting says so."""
    made.ehlo_or_helo_if_needed()
    if made.has_extn("starttls"):
        code, reply = made.starttls(context=context)
        if code != 220:
            raise _Ended(SendReason.TLS_REFUSED, code, reply)
        made.ehlo_or_helo_if_needed()
    elif not endpoint.may_be_plaintext:
        raise _Ended(SendReason.TLS_REQUIRED, reply=f"{endpoint.host} offers no STARTTLS")


def _check(
    envelope_from: str, recipients: Sequence[str], payload: bytes, copies: Sequence[str] = ()
) -> None:
    """Refuse what would mean something else on the wire than it does here."""
    if not recipients:
        raise _Ended(SendReason.NO_RECIPIENTS)
    for address in (envelope_from, *recipients, *copies):
        if not _ADDRESS.fullmatch(address):
            raise _Ended(
                SendReason.ADDRESS_INVALID, reply=f"{address!r} cannot stand in an envelope"
            )
    if _BARE.search(payload):
        raise _Ended(
            SendReason.PAYLOAD_NOT_CANONICAL, reply="a bare CR or LF would end up as another text"
        )


def _before_data(error: Exception) -> SubmissionResult:
    """A broken session whose DATA did not begin: nothing can have been accepted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return SubmissionResult(
            SendOutcome.FAILED, SendReason.CERTIFICATE_REFUSED, reply=_text(error.verify_message)
        )
    code = getattr(error, "smtp_code", None)
    reason = (
        SendReason.REFUSED_BEFORE_DATA
        if isinstance(code, int) and code >= 400
        else SendReason.NOT_CONNECTED
    )
    return SubmissionResult(
        SendOutcome.FAILED,
        reason,
        code if isinstance(code, int) else None,
        _text(getattr(error, "smtp_error", b"") or str(error)),
    )


def _out_of_turn(code: int, reply: bytes, refused: dict[str, str]) -> SubmissionResult:
    """The server spoke before the final dot, which then never leaves: a refusal is certain."""
    result = _final(code, reply, refused)
    if result.outcome is not SendOutcome.FAILED:
        unknown = (SendOutcome.UNKNOWN, SendReason.UNEXPECTED_REPLY)
        result = SubmissionResult(*unknown, code, _text(reply), refused)
    return replace(result, final_dot_sent=False)


def _final(code: int, reply: bytes, refused: dict[str, str]) -> SubmissionResult:
    if code == 250:
        outcome, reason = SendOutcome.ACCEPTED, SendReason.SMTP_250
    elif 400 <= code <= 599:
        outcome, reason = SendOutcome.FAILED, SendReason.REFUSED_AFTER_DATA
    else:
        outcome, reason = SendOutcome.UNKNOWN, SendReason.UNEXPECTED_REPLY
    return SubmissionResult(outcome, reason, code, _text(reply), refused, final_dot_sent=True)


def _text(reply: bytes | str) -> str:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    return " ".join(text.split())[:200]
