"""Why the Gmail profile refuses: one closed list of stable words, with what each one means."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    """Why the Gmail profile refuses something, or cannot call a sent message proven."""

    SCOPE_OMITTED = "scope_omitted"
    SCOPE_NULL = "scope_null"
    SCOPE_NOT_TEXT = "scope_not_text"
    SCOPE_EMPTY = "scope_empty"
    SCOPE_TOO_LONG = "scope_too_long"
    SCOPE_CONTROL_CHARACTER = "scope_control_character"
    SCOPE_MALFORMED = "scope_malformed"
    SCOPE_DUPLICATE = "scope_duplicate"
    SCOPE_EXTRA = "scope_extra"
    SCOPE_MISSING = "scope_missing"

    USERINFO_MALFORMED = "userinfo_malformed"
    EMAIL_NOT_VERIFIED = "email_not_verified"
    ISSUER_FOREIGN = "issuer_foreign"
    SUBJECTS_DIFFER = "subjects_differ"
    ADDRESSES_DIFFER = "addresses_differ"
    ACCOUNT_CHANGED = "account_changed"
    MAILBOX_DIFFERS = "mailbox_differs"

    THREAD_MALFORMED = "thread_malformed"
    THREAD_TOO_LONG = "thread_too_long"
    SOURCE_NOT_FOUND = "source_not_found"
    SOURCE_AMBIGUOUS = "source_ambiguous"
    HEADER_MISSING = "header_missing"
    HEADER_DUPLICATED = "header_duplicated"
    HEADER_MALFORMED = "header_malformed"
    AMBIGUOUS_FOLDING = "ambiguous_folding"
    CONTROL_CHARACTER = "control_character"
    FROM_NOT_ONE_ADDRESS = "from_not_one_address"
    ADDRESS_NOT_PLAIN = "address_not_plain"
    ID_MALFORMED = "id_malformed"
    REFERENCES_TOO_MANY = "references_too_many"
    REFERENCES_TOO_LONG = "references_too_long"
    SUBJECT_TOO_LONG = "subject_too_long"
    HEADER_UNREADABLE = "header_unreadable"
    DRIFTED = "drifted"

    MUST_SIGN = "must_sign"
    ATTACHMENTS = "attachments"
    NOT_ONE_REPLY = "not_one_reply"
    RECIPIENT_DIFFERS = "recipient_differs"
    SOURCE_DIFFERS = "source_differs"
    DECLARED_SCOPES = "declared_scopes"
    NOT_A_PAIR = "not_a_pair"
    TOKEN_GONE = "token_gone"  # noqa: S105 (a reason, no secret)

    BODY_EMPTY = "body_empty"
    BODY_TOO_LONG = "body_too_long"
    BODY_TOO_LARGE = "body_too_large"
    MIME_TOO_LARGE = "mime_too_large"
    MIME_NOT_EXACT = "mime_not_exact"
    REQUEST_MALFORMED = "request_malformed"
    REQUEST_NOT_EXACT = "request_not_exact"
    THREAD_ID_MISSING = "thread_id_missing"
    THREAD_ID_DIFFERS = "thread_id_differs"

    ANSWER_MALFORMED = "answer_malformed"
    MESSAGE_DIFFERS = "message_differs"
    THREAD_DIFFERS = "thread_differs"
    NOT_IN_SENT = "not_in_sent"
    RAW_TOO_LARGE = "raw_too_large"
    TRUNCATED = "truncated"
    UNEXPECTED_HEADER = "unexpected_header"
    EXTRA_RECIPIENT = "extra_recipient"
    MESSAGE_ID_REPLACED = "message_id_replaced"
    FROM_DIFFERS = "from_differs"
    TO_DIFFERS = "to_differs"
    SUBJECT_DIFFERS = "subject_differs"
    IN_REPLY_TO_DIFFERS = "in_reply_to_differs"
    REFERENCES_DIFFER = "references_differ"
    EXTRA_PARTS = "extra_parts"
    UNSUPPORTED_TYPE = "unsupported_type"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    UNSUPPORTED_CHARSET = "unsupported_charset"
    BODY_MALFORMED = "body_malformed"
    BODY_DIFFERS = "body_differs"
    MORE_PAGES = "more_pages"
    TOO_MANY_CANDIDATES = "too_many_candidates"


MEANINGS: Mapping[str, str] = {
    Reason.SCOPE_OMITTED: "Google's refresh answer does not say which scopes the token has.",
    Reason.SCOPE_NULL: "Google's refresh answer says null where the scopes should be.",
    Reason.SCOPE_NOT_TEXT: "The scopes in Google's refresh answer are no text.",
    Reason.SCOPE_EMPTY: "Google's refresh answer names no scope at all.",
    Reason.SCOPE_TOO_LONG: "The scopes in Google's refresh answer are beyond the bound.",
    Reason.SCOPE_CONTROL_CHARACTER: "The scopes hold a control character.",
    Reason.SCOPE_MALFORMED: "The scopes are no list of tokens with single spaces between.",
    Reason.SCOPE_DUPLICATE: "A scope is named twice, or email in both its spellings.",
    Reason.SCOPE_EXTRA: "The token may do more than this connection was reviewed for.",
    Reason.SCOPE_MISSING: "The token lacks a scope that this connection needs.",
    Reason.USERINFO_MALFORMED: "Google's answer about the account lacks a usable field.",
    Reason.EMAIL_NOT_VERIFIED: "Google does not say that the account's address is verified.",
    Reason.ISSUER_FOREIGN: "The identity was issued by somebody else than Google.",
    Reason.SUBJECTS_DIFFER: "The two credentials belong to different Google accounts.",
    Reason.ADDRESSES_DIFFER: "The two credentials have different verified addresses.",
    Reason.ACCOUNT_CHANGED: "The Google account is not the one that was reviewed.",
    Reason.MAILBOX_DIFFERS: "The mailbox is not exactly the verified address.",
    Reason.THREAD_MALFORMED: "Gmail's answer about the thread cannot be read.",
    Reason.THREAD_TOO_LONG: "The thread has more than 10 messages.",
    Reason.SOURCE_NOT_FOUND: "The message to answer is not there.",
    Reason.SOURCE_AMBIGUOUS: "The mailbox has the message to answer more than once.",
    Reason.HEADER_MISSING: "A header that must be there is missing.",
    Reason.HEADER_DUPLICATED: "A header that counts stands there more than once.",
    Reason.HEADER_MALFORMED: "A header cannot be read in one way only.",
    Reason.AMBIGUOUS_FOLDING: "A header is broken over lines so that readers would differ.",
    Reason.CONTROL_CHARACTER: "A control character stands where text should be.",
    Reason.FROM_NOT_ONE_ADDRESS: "The message to answer does not name exactly one sender.",
    Reason.ADDRESS_NOT_PLAIN: "An address is not one plain ASCII address.",
    Reason.ID_MALFORMED: "A Message-ID is not exactly one id in angle brackets.",
    Reason.REFERENCES_TOO_MANY: "The reply would refer to more than 20 messages.",
    Reason.REFERENCES_TOO_LONG: "The references are over 2 KiB.",
    Reason.SUBJECT_TOO_LONG: "The subject is over 200 bytes.",
    Reason.HEADER_UNREADABLE: "A header cannot be decoded without guessing.",
    Reason.DRIFTED: "Something it rests on changed between the yes and the contact.",
    Reason.MUST_SIGN: "This account signs what it sends, and such a reply is never signed.",
    Reason.ATTACHMENTS: "The draft has files, and such a reply carries none.",
    Reason.NOT_ONE_REPLY: "The draft is no reply to exactly one recipient.",
    Reason.RECIPIENT_DIFFERS: "The draft goes to somebody else than the letter came from.",
    Reason.SOURCE_DIFFERS: "Gmail has another letter there than the one that was answered.",
    Reason.DECLARED_SCOPES: "The connection declares other scopes than its use has.",
    Reason.NOT_A_PAIR: "A reading and a sending connection are verified together.",
    Reason.TOKEN_GONE: "The tokens of the last look were gone; nothing was posted.",
    Reason.BODY_EMPTY: "The reply has no text.",
    Reason.BODY_TOO_LONG: "The reply has more than 4,000 characters.",
    Reason.BODY_TOO_LARGE: "The reply's text is over 8 KiB.",
    Reason.MIME_TOO_LARGE: "The whole message is over 16 KiB.",
    Reason.MIME_NOT_EXACT: "The bytes are not the message that was approved.",
    Reason.REQUEST_MALFORMED: "The request is not the one JSON object that Gmail is sent.",
    Reason.REQUEST_NOT_EXACT: "The request is not, byte for byte, the one that was approved.",
    Reason.THREAD_ID_MISSING: "The request does not name the thread that it answers.",
    Reason.THREAD_ID_DIFFERS: "The request names another thread than the approved one.",
    Reason.ANSWER_MALFORMED: "Gmail's answer about the sent message cannot be read.",
    Reason.MESSAGE_DIFFERS: "Gmail answered about another message than the one asked for.",
    Reason.THREAD_DIFFERS: "Gmail filed the message in another thread.",
    Reason.NOT_IN_SENT: "The message does not lie among the sent ones.",
    Reason.RAW_TOO_LARGE: "Gmail's copy is beyond the bound.",
    Reason.TRUNCATED: "Gmail's copy ends early.",
    Reason.UNEXPECTED_HEADER: "Gmail's copy has a header that nobody approved.",
    Reason.EXTRA_RECIPIENT: "Gmail's copy names a further recipient.",
    Reason.MESSAGE_ID_REPLACED: "Gmail gave the message another Message-ID.",
    Reason.FROM_DIFFERS: "Gmail's copy has another From.",
    Reason.TO_DIFFERS: "Gmail's copy has another To.",
    Reason.SUBJECT_DIFFERS: "Gmail's copy has another Subject.",
    Reason.IN_REPLY_TO_DIFFERS: "Gmail's copy answers another message.",
    Reason.REFERENCES_DIFFER: "Gmail's copy has other References.",
    Reason.EXTRA_PARTS: "Gmail's copy is not one single text.",
    Reason.UNSUPPORTED_TYPE: "Gmail's copy is no plain text.",
    Reason.UNSUPPORTED_ENCODING: "Gmail's copy has a transfer encoding that is not read here.",
    Reason.UNSUPPORTED_CHARSET: "Gmail's copy has a charset that is not read here.",
    Reason.BODY_MALFORMED: "The text of Gmail's copy cannot be decoded strictly.",
    Reason.BODY_DIFFERS: "The text of Gmail's copy is another one.",
    Reason.MORE_PAGES: "Gmail's list has further pages.",
    Reason.TOO_MANY_CANDIDATES: "Gmail's list names more than five messages.",
}

#: How one request to Google ended, where it ended no act well: what people read beside it. A status
#: other than these is told by its number.
GOOGLE: Mapping[str, str] = {
    "not-reached": "Google could not be reached.",
    "timed-out": "Google did not answer in time.",
    "connection-lost": "The connection to Google broke before the answer was whole.",
    "answer-too-large": "Google's answer was larger than may be read.",
    "bad-answer": "Google's answer was not what it documents.",
    "redirect-refused": "Google answered with another address; none is followed.",
    "needs-reconnect": "Google no longer accepts this credential: connect the account again.",
    "credential-refused": "Google does not accept the client id and secret.",
    **{f"http-{code}": f"Google answered {code}." for code in (400, 401, 403, 404, 408, 429)},
    **{f"http-{code}": f"Google answered {code}." for code in (307, 500, 502, 503, 504)},
    "http-200": "Google took it, and the read-back decides.",
}
