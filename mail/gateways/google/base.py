"""The contract of the Google gateway: one method is one HTTP request, paid for by a grant.

Nothing here repeats a request, follows a redirect or keeps a token. An answer is read strictly:
what is missing, doubled or of another type is a `BadAnswer` that names the field. What an answer
means (whether scopes suffice, whether a mailbox is the expected one) is decided by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, Protocol

from approvals.types import Contact, Grant
from guards.secrets import Secret
from mail.exceptions import TransportError

#: Seconds of wall time of one request, from the name server to the last byte (ADR-016).
REQUEST_SECONDS: Final = 10.0
#: The most that a thread or a message may weigh as it is answered (ADR-016).
SOURCE_BYTES: Final = 256 * 1024
#: The most that a message resource may weigh that we ask Google to send: 16 KiB of MIME and a bit.
SEND_BYTES: Final = 32 * 1024
#: Candidates that are looked at for one sent message; one more is asked for, so that it shows.
SENT_CANDIDATES: Final = 5


class Absent(Enum):
    """Says of a value that the answer did not hold it at all, which is not null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


@dataclass(frozen=True, slots=True)
class Credential:
    """What a refresh needs. Resolved a moment ago from references, and kept no longer."""

    client_id: str
    client_secret: Secret
    refresh_token: Secret


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """What a refresh gave.

    `scope` is whatever stood there, of whatever type: `ABSENT`, None, a text, a number. It was not
    judged: see the profile's rule. `expires_in` is in seconds.
    """

    access_token: Secret
    scope: object
    expires_in: int
    token_type: str


@dataclass(frozen=True, slots=True)
class UserInfo:
    """Who a token speaks for. Texts are compared as they are: no case, no dots, no aliases.

    `issuer` is whatever `iss` held, ABSENT where it was not there. It was not judged.
    """

    subject: str
    email: str
    email_verified: bool
    issuer: object = ABSENT


@dataclass(frozen=True, slots=True)
class Profile:
    """Which mailbox a token opens, and where its history stands."""

    email: str
    history_id: int


@dataclass(frozen=True, slots=True)
class MessageReference:
    """A message by Google's own ids."""

    id: str
    thread_id: str


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """What Google says about a message beside its bytes. `internal_date` is in milliseconds UTC."""

    id: str
    thread_id: str
    labels: frozenset[str]
    history_id: int
    internal_date: int


@dataclass(frozen=True, slots=True)
class ThreadAnswer:
    """A thread with all its messages, in Google's order, each of which says that it is in it."""

    id: str
    history_id: int
    messages: tuple[MessageFacts, ...]


@dataclass(frozen=True, slots=True)
class RawMessage:
    """One message with its exact bytes."""

    facts: MessageFacts
    raw: bytes


@dataclass(frozen=True, slots=True)
class HeaderMessage:
    """One message by its header alone: names and values as Google tells them, size in bytes."""

    facts: MessageFacts
    headers: tuple[tuple[str, str], ...]
    size: int


@dataclass(frozen=True, slots=True)
class ThreadHeaders:
    """A thread with the headers of all its messages, in Google's order."""

    id: str
    history_id: int
    messages: tuple[HeaderMessage, ...]


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page of a list; `next_page` is empty on the last one."""

    messages: tuple[MessageReference, ...]
    next_page: str = ""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """One page of changes: messages that came or were given the label, oldest first.

    `history_id` is where the mailbox stands now: a cursor once the last page was read.
    """

    history_id: int
    messages: tuple[MessageReference, ...]
    next_page: str = ""


class SendKind(StrEnum):
    """What is certain about a message resource that was posted."""

    #: 200, and a whole message resource came back.
    TAKEN = "taken"
    #: 200, but what came back is none, or not whole.
    UNREADABLE = "unreadable"
    #: A whole answer with another status. Google may have filed the message all the same.
    REFUSED = "refused"
    #: Bytes of the request left, and no whole answer came.
    LOST = "lost"
    #: No byte of the request left this machine.
    NOT_BEGUN = "not-begun"


@dataclass(frozen=True, slots=True)
class SendAnswer:
    """How the one POST ended.

    `reason` is a stable word: `http-<status>`, or the code of a `GoogleError` without its `google-`
    (`timed-out`, `connection-lost`, `not-reached`, `bad-answer` …); `field` names what a bad answer
    lacked. Ids and labels are set for TAKEN alone.
    """

    kind: SendKind
    reason: str
    status: int | None = None
    message_id: str = ""
    thread_id: str = ""
    labels: frozenset[str] = field(default_factory=frozenset)
    field: str = ""


class GoogleError(TransportError):
    """Google could not be asked, or its answer does not count.

    `begun` says whether any byte of the request may have left. `code` and `detail` never hold a
    token, an address or a body.
    """

    code = "google"

    def __init__(self, detail: str = "", *, field: str | None = None, begun: bool = True) -> None:
        super().__init__(detail, field=field)
        self.begun = begun

    @property
    def reason(self) -> str:
        """The stable word without the family's name."""
        return self.code.removeprefix("google-")


class NotReached(GoogleError):
    """No connection to Google came about."""

    code = "google-not-reached"


class UntrustedServer(GoogleError):
    """The server does not prove that it is Google's."""

    code = "google-certificate-refused"
    permanent = True


class TimedOut(GoogleError):
    """The request was not over within its time."""

    code = "google-timed-out"


class ConnectionBroken(GoogleError):
    """The connection to Google broke before the answer was whole."""

    code = "google-connection-lost"


class AnswerTooLarge(GoogleError):
    """The answer is larger than what may be read of it."""

    code = "google-answer-too-large"
    permanent = True


class RedirectRefused(GoogleError):
    """Google answered with another address; none is followed."""

    code = "google-redirect-refused"
    permanent = True


class BadAnswer(GoogleError):
    """The answer is not what Google documents; `field` names what is wrong with it."""

    code = "google-bad-answer"
    permanent = True


class NeedsReconnect(GoogleError):
    """Google no longer accepts this account's token. Until you connect it again it is not used."""

    code = "needs-reconnect"
    permanent = True


class CredentialRefused(GoogleError):
    """Google does not accept the client id and secret."""

    code = "google-credential-refused"
    permanent = True


class StatusRefused(GoogleError):
    """Google answered with an error.

    `status` is HTTP's. 401, 408, 429, 5xx and a 403 about rates pass by themselves.
    """

    code = "google-status"

    def __init__(self, status: int, *, word: str = "", passing: bool) -> None:
        super().__init__(f"Google answered {status}" + (f" ({word})" if word else ""))
        self.status = status
        self.permanent = not passing

    @property
    def reason(self) -> str:
        """The status as a word."""
        return f"http-{self.status}"


class Missing(StatusRefused):
    """Google does not have that message or thread (any more)."""

    code = "google-missing"
    permanent = True

    def __init__(self) -> None:
        super().__init__(404, word="not found", passing=False)


class HistoryGone(StatusRefused):
    """The history does not reach back to the cursor: everything has to be listed again."""

    code = "google-history-gone"
    permanent = True

    def __init__(self) -> None:
        super().__init__(404, word="history is gone", passing=False)


class GoogleGateway(Protocol):
    """Google, asked once per call. Each method spends one contact and raises a `GoogleError`.

    `ContactRefused` (the grant's own) and a deadline that is over end a call before any contact.
    """

    def refresh(self, *, grant: Grant, credential: Credential) -> TokenAnswer:
        """Spends REFRESH. NeedsReconnect where the refresh token counts for nothing any more."""
        ...

    def userinfo(self, *, grant: Grant, token: Secret) -> UserInfo:
        """Spends USERINFO. All three claims have to be there."""
        ...

    def profile(self, *, grant: Grant, token: Secret) -> Profile:
        """Spends PROFILE."""
        ...

    def thread(self, *, grant: Grant, token: Secret, thread_id: str) -> ThreadAnswer:
        """Spends READ. Within 256 KiB; Missing where there is no such thread."""
        ...

    def thread_headers(self, *, grant: Grant, token: Secret, thread_id: str) -> ThreadHeaders:
        """Spends READ. The same, with what stands in the messages' headers."""
        ...

    def message_raw(
        self,
        *,
        grant: Grant,
        token: Secret,
        message_id: str,
        contact: Contact = Contact.READ,
        max_bytes: int = SOURCE_BYTES,
    ) -> RawMessage:
        """Spends READ (a source) or GET (a candidate, or what was sent): the caller says which.

        `max_bytes` bounds the answer, in which a message weighs a third more than its bytes.
        """
        ...

    def message_headers(self, *, grant: Grant, token: Secret, message_id: str) -> HeaderMessage:
        """Spends READ. For messages too large to be read whole."""
        ...

    def send(self, *, grant: Grant, token: Secret, request_json: bytes) -> SendAnswer:
        """Spends POST: exactly these bytes, once. Never raises for what network or Google do."""
        ...

    def list_sent(self, *, grant: Grant, token: Secret, rfc822_message_id: str) -> MessagePage:
        """Spends LIST. One page of what Sent holds by that Message-ID (no brackets)."""
        ...

    def find_source(self, *, grant: Grant, token: Secret, rfc822_message_id: str) -> MessagePage:
        """Spends READ. Where the mailbox has a message that came to us another way."""
        ...

    def list_messages(
        self, *, grant: Grant, token: Secret, label: str, page: str = ""
    ) -> MessagePage:
        """Spends LIST. One page of the messages under a label, newest first."""
        ...

    def history(
        self, *, grant: Grant, token: Secret, label: str, start: int, page: str = ""
    ) -> HistoryPage:
        """Spends LIST. What came under a label since `start`; HistoryGone where it was too long."""
        ...
