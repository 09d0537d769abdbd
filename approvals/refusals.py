"""What the desk refuses, as a sentence with its stable word: never a page that only says that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from approvals.exceptions import Blocked, ContactRefused
from approvals.sentences import look_sentence, reason_sentence
from guards.exceptions import Conflict

#: Why a review is not opened, or a connection not asked. Other words are the kinds' own.
SENTENCES: Mapping[str, str] = {
    "session_unavailable": (
        "Only the session that it was begun in can go on with it, and that one is over or is "
        "another than yours. Open the held draft again."
    ),
    "authority_revoked": "The session or the grant that this rests on was revoked.",
    "goal_closed": "This review was ended or replaced by another. Open the held draft again.",
    "goal_changed": "What this review was for has changed. Open the held draft again.",
    "goal_deleted": "What this review was for was deleted.",
    "goal_reassigned": "What this review was for belongs to somebody else now.",
    "consent_expired": "The time for asking was over.",
    "consent_changed": "The grant is not what was granted.",
    "deadline_passed": "The time for asking was over.",
    "contacts_used_up": "Everything that it was allowed to ask has been asked.",
    "connection_unavailable": (
        "The account has no connection that may be used for this. Its own page has them: connect "
        "it, or verify what is connected."
    ),
    "connection_changed": "The account was connected anew meanwhile.",
    "needs_reconnect": "The provider no longer accepts the connection: connect the account again.",
    "job_not_held": "Another process went on with it.",
    "not_granted": "Nobody granted this contact.",
}


#: What a drifted field is called. Others are told by their own name.
FIELDS: Mapping[str, str] = {
    "account_active": "whether the account is switched on",
    "identity_active": "whether the identity is active",
    "sign_outbound": "whether the account signs",
    "body": "the text",
    "to": "the recipient",
    "from": "the address that it is sent from",
    "message_id": "its Message-ID",
    "files": "what is attached",
    "source": "the message that it answers",
    "status": "the draft itself",
}

#: Words in a drifted field's place that name no field.
ENDED: Mapping[str, str] = {
    "reopened": "The draft was opened for review again: this page is void.",
    "withdrawn": "The draft was withdrawn.",
}


@contextmanager
def in_words(sentences: Mapping[str, str] = SENTENCES) -> Iterator[None]:
    """Tell a refusal of the engine in words; its stable word stays with it."""
    try:
        yield
    except (Blocked, ContactRefused) as refused:
        words = told(refused, sentences)
        raise Conflict(words, field=refused.field, rule=refused.reason) from refused


def told(refused: Blocked | ContactRefused, sentences: Mapping[str, str] = SENTENCES) -> str:
    """The sentence of a refusal, with the field that a look found wrong."""
    spoken = refused.reason.replace("_", " ").replace("-", " ")
    words = (
        sentences.get(refused.reason)
        or look_sentence(refused.reason)
        or reason_sentence(refused.reason)
        or f"{spoken[:1].upper()}{spoken[1:]}."
    )
    field = (refused.field or "").replace("_", " ")
    is_said = not field or field in words.lower() or isinstance(refused, ContactRefused)
    about = "" if is_said else f" It is about: {field}."
    closing = "" if words.endswith("othing was contacted.") else " Nothing was sent."
    return f"{words}{about}{closing}"


def changed(drifted: str) -> str:
    """That a field is no longer what was shown, or what else made a review void."""
    if drifted in ENDED:
        return ENDED[drifted]
    named = FIELDS.get(drifted) or drifted.replace("_", " ")
    return f"{named[:1].upper()}{named[1:]} has changed since this was opened."
