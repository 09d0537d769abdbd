"""The gateway itself: each method pays for one contact, makes one request, and reads one answer."""

from __future__ import annotations

from approvals.types import Contact, Grant
from guards.exceptions import InvalidInput
from guards.secrets import Secret
from mail.gateways.google import identity, reading, sending
from mail.gateways.google.base import (
    REQUEST_SECONDS,
    SOURCE_BYTES,
    Credential,
    GoogleError,
    HeaderMessage,
    HistoryPage,
    MessagePage,
    Profile,
    RawMessage,
    SendAnswer,
    ThreadAnswer,
    ThreadHeaders,
    TimedOut,
    TokenAnswer,
    UserInfo,
)
from mail.gateways.google.http import Request, Response, Wire


class GoogleClient:
    """Google over a wire: `http.HttpWire` to the real hosts, `memory.MemoryWire` in tests and demo.

    `seconds` bounds each request; what is left of the grant's time bounds it further.
    """

    def __init__(self, wire: Wire, *, seconds: float = REQUEST_SECONDS) -> None:
        if not 0 < seconds <= REQUEST_SECONDS:
            raise ValueError(f"seconds must be above 0 and at most {REQUEST_SECONDS}")
        self._wire = wire
        self._seconds = seconds

    def refresh(self, *, grant: Grant, credential: Credential) -> TokenAnswer:
        """A new access token, with its scope as it was answered."""
        request = identity.refresh_request(credential)
        response = self._once(grant, Contact.REFRESH, request, identity.TOKEN_BYTES)
        return identity.read_token(response)

    def userinfo(self, *, grant: Grant, token: Secret) -> UserInfo:
        """Who the token speaks for."""
        request = identity.userinfo_request(token)
        response = self._once(grant, Contact.USERINFO, request, identity.SMALL_BYTES)
        return identity.read_userinfo(response)

    def profile(self, *, grant: Grant, token: Secret) -> Profile:
        """Which mailbox the token opens."""
        request = identity.profile_request(token)
        response = self._once(grant, Contact.PROFILE, request, identity.SMALL_BYTES)
        return identity.read_profile(response)

    def thread(self, *, grant: Grant, token: Secret, thread_id: str) -> ThreadAnswer:
        """The thread with the facts of its messages."""
        request = reading.thread_request(token, thread_id)
        response = self._once(grant, Contact.READ, request, SOURCE_BYTES)
        return reading.read_thread(response, thread_id)

    def thread_headers(self, *, grant: Grant, token: Secret, thread_id: str) -> ThreadHeaders:
        """The thread with the headers of its messages."""
        request = reading.thread_request(token, thread_id, form="metadata")
        response = self._once(grant, Contact.READ, request, SOURCE_BYTES)
        return reading.read_thread_headers(response, thread_id)

    def message_raw(
        self,
        *,
        grant: Grant,
        token: Secret,
        message_id: str,
        contact: Contact = Contact.READ,
        max_bytes: int = SOURCE_BYTES,
    ) -> RawMessage:
        """One message with its bytes."""
        if contact not in (Contact.READ, Contact.GET):
            raise InvalidInput("a message is paid for as a read or a get", field="contact")
        request = reading.raw_request(token, message_id)
        return reading.read_raw(self._once(grant, contact, request, max_bytes), message_id)

    def message_headers(self, *, grant: Grant, token: Secret, message_id: str) -> HeaderMessage:
        """One message by its header."""
        request = reading.headers_request(token, message_id)
        response = self._once(grant, Contact.READ, request, SOURCE_BYTES)
        return reading.read_headers(response, message_id)

    def send(self, *, grant: Grant, token: Secret, request_json: bytes) -> SendAnswer:
        """Post these bytes once."""
        request = sending.send_request(token, request_json)
        try:
            response = self._once(grant, Contact.POST, request, identity.SMALL_BYTES)
        except GoogleError as error:
            return sending.without_answer(error)
        return sending.read_send(response)

    def list_sent(self, *, grant: Grant, token: Secret, rfc822_message_id: str) -> MessagePage:
        """What Sent holds by that Message-ID."""
        request = reading.sent_request(token, rfc822_message_id)
        response = self._once(grant, Contact.LIST, request, identity.SMALL_BYTES)
        return reading.read_list(response)

    def find_source(self, *, grant: Grant, token: Secret, rfc822_message_id: str) -> MessagePage:
        """Where the mailbox has a message that came to us another way."""
        request = reading.source_request(token, rfc822_message_id)
        response = self._once(grant, Contact.READ, request, identity.SMALL_BYTES)
        return reading.read_list(response)

    def list_messages(
        self, *, grant: Grant, token: Secret, label: str, page: str = ""
    ) -> MessagePage:
        """One page of a label."""
        request = reading.list_request(token, label, page)
        return reading.read_list(self._once(grant, Contact.LIST, request, reading.PAGE_BYTES))

    def history(
        self, *, grant: Grant, token: Secret, label: str, start: int, page: str = ""
    ) -> HistoryPage:
        """One page of what came under a label."""
        request = reading.history_request(token, label, start, page)
        response = self._once(grant, Contact.LIST, request, reading.PAGE_BYTES)
        return reading.read_history(response, label)

    def _once(self, grant: Grant, contact: Contact, request: Request, max_bytes: int) -> Response:
        """Pay, then ask: exactly one request, or none where the grant or the time says no."""
        if grant.seconds_left() <= 0:
            raise TimedOut("the time for this job is over", begun=False)
        grant.spend(contact)
        seconds = min(self._seconds, grant.seconds_left())
        if seconds <= 0:
            raise TimedOut("the time for this job is over", begun=False)
        return self._wire.exchange(request, seconds=seconds, max_bytes=max_bytes)
