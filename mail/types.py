"""Plain values that cross mail's border: what a parser saw, what a transport did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from guards.types import TransportFacts


class LoopReason(StrEnum):
    """Why a message is never answered automatically: the closed list."""

    AUTO_SUBMITTED = "auto-submitted"
    BULK = "bulk"
    LIST = "list"
    BOUNCE = "bounce"
    OWN_ADDRESS = "own-address"
    NO_IDENTITY = "no-identity"
    RATE_LIMIT = "rate-limit"


class SendReason(StrEnum):
    """How a submission ended, and so why: the closed list. All but the first and the last three are
    certain not to have left.
    """

    SMTP_250 = "smtp-250"
    NO_RECIPIENTS = "no-recipients"
    ADDRESS_INVALID = "address-invalid"
    PAYLOAD_NOT_CANONICAL = "payload-not-canonical"
    READ_ONLY = "read-only"
    NOT_CONNECTED = "not-connected"
    CERTIFICATE_REFUSED = "certificate-refused"
    TLS_REQUIRED = "tls-required"
    TLS_REFUSED = "tls-refused"
    LOGIN_REFUSED = "login-refused"
    REFUSED_BEFORE_DATA = "refused-before-data"
    SENDER_REFUSED = "sender-refused"
    RECIPIENTS_REFUSED = "recipients-refused"
    MESSAGE_TOO_LARGE = "message-too-large"
    EIGHT_BIT_NOT_SUPPORTED = "eight-bit-not-supported"
    INTERNATIONAL_ADDRESS_NOT_SUPPORTED = "international-address-not-supported"
    DATA_REFUSED = "data-refused"
    REFUSED_AFTER_DATA = "refused-after-data"
    CONNECTION_LOST_IN_DATA = "connection-lost-in-data"
    CONNECTION_LOST_AFTER_DATA = "connection-lost-after-data"
    UNEXPECTED_REPLY = "unexpected-reply"


class Verb(StrEnum):
    """What a mailed answer may ask for. Only the first lets anything leave."""

    APPROVE = "approve"
    REJECT = "reject"
    NO = "no"
    LATER = "later"
    PAUSE = "pause"
    STOP = "stop"


class OrderFault(StrEnum):
    """Why a text is not one order: the closed list."""

    NO_ORDER = "no-order"
    SEVERAL_ORDERS = "several-orders"
    UNCLEAR_ORDER = "unclear-order"


class AnswerReason(StrEnum):
    """What became of a mailed answer, beside the faults of its order: the closed list.

    The first is the only one under which anything was done.
    """

    DONE = "done"
    NOT_THE_OWNER = "not-the-owner"
    NO_OWNER = "no-owner"
    FIRST_PASS = "first-pass"  # noqa: S105
    INCOMPLETE = "incomplete"
    AUTOMATIC = "automatic"
    NOT_SIGNED = "not-signed"
    WRONG_KEY = "wrong-key"
    BAD_SIGNATURE = "bad-signature"
    NOT_IN_SIGNED_TEXT = "not-in-signed-text"
    TOO_OLD = "too-old"
    REPLAYED = "replayed"
    UNKNOWN_DIGEST = "unknown-digest"
    ANSWER_ELSEWHERE = "answer-elsewhere"
    EXPIRED = "expired"
    CHANGED = "changed"
    ALREADY_DECIDED = "already-decided"
    OUTSTANDING = "outstanding"
    REFUSED = "refused"


class Provider(StrEnum):
    """Which provider stands behind an account; it decides which headers may count."""

    GENERIC = "generic"
    PROTON_BRIDGE = "proton-bridge"
    GMAIL = "gmail"
    FASTMAIL = "fastmail"


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a header: display name as text, address with a lower-case domain."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class ParsedPart:
    """One leaf of the MIME tree, decoded.

    `path` numbers it in the tree (`1.2`), `name` is shown text only and never a path, `content` the
    decoded bytes, `sha256` theirs. `is_text`/`is_html` mark the chosen body parts.
    """

    path: str
    type: str
    name: str | None
    content: bytes
    sha256: str
    disposition: str = ""
    content_id: str = ""
    charset: str = ""
    is_text: bool = False
    is_html: bool = False
    is_signature: bool = False
    is_signed: bool = False

    @property
    def is_attachment(self) -> bool:
        """Every leaf but the chosen text, the chosen HTML and the signature."""
        return not (self.is_text or self.is_html or self.is_signature)


@dataclass(frozen=True, slots=True)
class Attachment:
    """One attachment of a message that arrived, with its bytes.

    `index` numbers it among all leaves of the message, from 1; `path` is its place in the MIME tree
    (`1.2`). `name` is what the sender called it: text to show, never a path, and "" where there is
    none.
    """

    index: int
    path: str
    name: str
    type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class MimeNode:
    """One node of the MIME structure, for diagnosis: type and size, never content."""

    path: str
    type: str
    size: int
    name: str | None = None
    children: tuple[MimeNode, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """What a message's raw bytes say. Made for any bytes whatever, without raising.

    `sender` is the one From address or None; `text` uses LF only and falls back to the HTML's text.
    `signed_text` is the signed part's own text/plain, `signed_to`/`signed_from` its protected
    headers. `defects` are stable dotted names. `quarantine` is a reason when the message is beyond
    the bounds and only its raw bytes and outer headers count.
    """

    sha256: str
    size: int
    sender: Address | None
    from_all: tuple[Address, ...]
    to: tuple[Address, ...]
    cc: tuple[Address, ...]
    reply_to: tuple[Address, ...]
    subject: str
    date: datetime | None
    message_id: str | None
    in_reply_to: tuple[str, ...]
    references: tuple[str, ...]
    text: str
    html: str | None
    parts: tuple[ParsedPart, ...]
    structure: MimeNode
    facts: TransportFacts
    signed_text: str | None
    signed_to: tuple[str, ...]
    loop: LoopReason | None
    headers: tuple[tuple[str, str], ...]
    defects: tuple[str, ...] = ()
    quarantine: str | None = None


@dataclass(frozen=True, slots=True)
class FetchedMessage:
    """One message as an IMAP server gave it: its place, its exact bytes, when it arrived there."""

    uid: int
    raw: bytes
    internal_date: datetime | None
    flags: frozenset[str] = frozenset()
    size: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class MailboxState:
    """What SELECT said about a folder. `modseq` is None where CONDSTORE is missing."""

    uidvalidity: int
    uidnext: int
    exists: int
    modseq: int | None = None


@dataclass(frozen=True, slots=True)
class Enclosure:
    """A file that is to leave with a message: the name people read, its media type, its bytes."""

    name: str
    type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ComposedMail:
    """A message ready to leave: the exact bytes, who it is from and to, and its fixed id.

    `message_id` has no angle brackets; `recipients` are the envelope's, in order.
    """

    raw: bytes
    message_id: str
    envelope_from: str
    recipients: tuple[str, ...]
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one pass stored: counts only."""

    fetched: int = 0
    stored: int = 0
    known: int = 0
    quarantined: int = 0
    admitted: int = 0
    first_pass: bool = False
