"""What can be wrong with a message: one closed list of stable dotted names, with meanings.

A defect never stops a message. It is stored, shown, and part of `explain`'s output.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Defect(StrEnum):
    """The closed list; `MEANINGS` says what each one stands for."""

    MESSAGE_EMPTY = "message.empty"
    MESSAGE_BYTE_ORDER_MARK = "message.byte-order-mark"
    MESSAGE_CR_ONLY = "message.cr-only"
    MESSAGE_MBOX_LINE = "message.mbox-line"
    MESSAGE_UNFORESEEN = "message.unforeseen"

    HEADER_MISSING = "header.missing"
    HEADER_MISSING_SEPARATOR = "header.missing-separator"
    HEADER_MALFORMED_LINE = "header.malformed-line"
    HEADER_SPACE_BEFORE_COLON = "header.space-before-colon"
    HEADER_BARE_CR = "header.bare-cr"
    HEADER_CONTROL_CHARACTER = "header.control-character"
    HEADER_BAD_CHARSET = "header.bad-charset"
    HEADER_BAD_ENCODED_WORD = "header.bad-encoded-word"
    HEADER_TOO_LONG = "header.too-long"
    HEADER_TOO_LARGE = "header.too-large"
    HEADER_DUPLICATE = "header.duplicate"
    HEADER_MISSING_FROM = "header.missing-from"
    HEADER_MULTIPLE_FROM = "header.multiple-from"
    HEADER_BAD_FROM = "header.bad-from"
    HEADER_ADDRESS_IN_NAME = "header.address-in-name"
    HEADER_BAD_ADDRESS = "header.bad-address"
    HEADER_BAD_DATE = "header.bad-date"
    HEADER_BAD_MESSAGE_ID = "header.bad-message-id"
    HEADER_BAD_PARAMETER = "header.bad-parameter"
    HEADER_BAD_CONTENT_TYPE = "header.bad-content-type"

    MIME_TOO_DEEP = "mime.too-deep"
    MIME_TOO_MANY_PARTS = "mime.too-many-parts"
    MIME_BAD_BOUNDARY = "mime.bad-boundary"
    MIME_BOUNDARY_NOT_FOUND = "mime.boundary-not-found"
    MIME_MISSING_CLOSE = "mime.missing-close"
    MIME_ENCODED_MULTIPART = "mime.encoded-multipart"
    MIME_UNKNOWN_ENCODING = "mime.unknown-encoding"
    MIME_BAD_BASE64 = "mime.bad-base64"
    MIME_BAD_QUOTED_PRINTABLE = "mime.bad-quoted-printable"

    ATTACHMENT_PATH_IN_NAME = "attachment.path-in-name"
    ATTACHMENT_NAME_CUT = "attachment.name-cut"

    TEXT_UNKNOWN_CHARSET = "text.unknown-charset"
    TEXT_BAD_CHARSET = "text.bad-charset"
    TEXT_CONTROL_CHARACTER = "text.control-character"
    TEXT_HIDDEN_HTML = "text.hidden-html"


MEANINGS: Mapping[Defect, str] = {
    Defect.MESSAGE_EMPTY: "The message has no bytes.",
    Defect.MESSAGE_BYTE_ORDER_MARK: "A byte order mark stood before the first header.",
    Defect.MESSAGE_CR_ONLY: "Its lines end with a lone CR; they were read as lines.",
    Defect.MESSAGE_MBOX_LINE: "An mbox separator line stood before the first header.",
    Defect.MESSAGE_UNFORESEEN: "The parser itself failed; only the raw bytes are kept.",
    Defect.HEADER_MISSING: "The message has no header at all.",
    Defect.HEADER_MISSING_SEPARATOR: "No empty line stands between the header and the text.",
    Defect.HEADER_MALFORMED_LINE: "A line among the headers is none; it was left out.",
    Defect.HEADER_SPACE_BEFORE_COLON: "A header's name is followed by space before its colon.",
    Defect.HEADER_BARE_CR: "A header holds a CR that ends no line; it was read as space.",
    Defect.HEADER_CONTROL_CHARACTER: "A header holds control characters; they were left out.",
    Defect.HEADER_BAD_CHARSET: "A header holds bytes that are not UTF-8.",
    Defect.HEADER_BAD_ENCODED_WORD: "An encoded word names an unknown charset or is damaged.",
    Defect.HEADER_TOO_LONG: "A header is over 64 KiB; it was cut.",
    Defect.HEADER_TOO_LARGE: "The headers are beyond the bounds; the message is quarantined.",
    Defect.HEADER_DUPLICATE: "A header that stands once stands several times; the first counts.",
    Defect.HEADER_MISSING_FROM: "There is no From header.",
    Defect.HEADER_MULTIPLE_FROM: "There are several From headers, or one with several addresses.",
    Defect.HEADER_BAD_FROM: "From is a group, a name only, empty, or cannot be parsed.",
    Defect.HEADER_ADDRESS_IN_NAME: "A From display name holds an address; it is never used.",
    Defect.HEADER_BAD_ADDRESS: "An address header holds something that is no address.",
    Defect.HEADER_BAD_DATE: "The Date header cannot be parsed.",
    Defect.HEADER_BAD_MESSAGE_ID: "The Message-ID is empty, damaged, or lacks its brackets.",
    Defect.HEADER_BAD_PARAMETER: "A parameter of a MIME header is damaged or repeated.",
    Defect.HEADER_BAD_CONTENT_TYPE: "A Content-Type cannot be parsed; read as text/plain.",
    Defect.MIME_TOO_DEEP: "Parts nest more than 50 deep; the message is quarantined.",
    Defect.MIME_TOO_MANY_PARTS: "There are more than 1,000 parts; the message is quarantined.",
    Defect.MIME_BAD_BOUNDARY: "A multipart has no usable boundary; read as text.",
    Defect.MIME_BOUNDARY_NOT_FOUND: "A multipart never uses its boundary; read as text.",
    Defect.MIME_MISSING_CLOSE: "A multipart lacks its closing delimiter.",
    Defect.MIME_ENCODED_MULTIPART: "A multipart declares base64 or quoted-printable; ignored.",
    Defect.MIME_UNKNOWN_ENCODING: "A transfer encoding is unknown; the bytes were left as sent.",
    Defect.MIME_BAD_BASE64: "A base64 part is damaged; what can be decoded was decoded.",
    Defect.MIME_BAD_QUOTED_PRINTABLE: "A quoted-printable part holds stray equals signs.",
    Defect.ATTACHMENT_PATH_IN_NAME: "An attachment's name looks like a path; it is text only.",
    Defect.ATTACHMENT_NAME_CUT: "An attachment's name is over 255 characters; it was cut.",
    Defect.TEXT_UNKNOWN_CHARSET: "A text's declared charset is unknown; it was guessed.",
    Defect.TEXT_BAD_CHARSET: "A text does not fit its declared charset; it was guessed.",
    Defect.TEXT_CONTROL_CHARACTER: "A text holds NUL characters; they were replaced.",
    Defect.TEXT_HIDDEN_HTML: "Text that the HTML hides from the reader was left out.",
}

#: The bounds whose crossing quarantines a message.
QUARANTINE = frozenset(
    {
        Defect.HEADER_TOO_LARGE,
        Defect.MIME_TOO_DEEP,
        Defect.MIME_TOO_MANY_PARTS,
        Defect.MESSAGE_UNFORESEEN,
    }
)

Defects = set[Defect]
